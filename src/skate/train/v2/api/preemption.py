"""Information about preempted nodes, under Ray's path."""

from skate.train._config.preemption import PreemptionInfo

__all__ = ["PreemptionInfo"]
