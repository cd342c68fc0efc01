"""Resource requests to an autoscaling cluster; on a single machine they only warn."""

from skate.autoscaler import sdk

__all__ = ["sdk"]
