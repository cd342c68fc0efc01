"""Nodes that are about to be taken away, under Ray's path."""

from skate.train._config.preemption import PreemptionInfo

__all__ = ["PreemptionInfo"]
