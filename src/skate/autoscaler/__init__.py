"""Asking a cluster for resources: Skate forwards it to Ray, and one machine has what it has."""

from skate.autoscaler import sdk

__all__ = ["sdk"]
