"""Barriers and broadcasts between the workers of a run, for any framework."""

from skate.train.collective.collectives import barrier, broadcast_from_rank_zero

__all__ = ["barrier", "broadcast_from_rank_zero"]
