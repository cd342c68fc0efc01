"""Waiting for, and hearing from, the other workers of a run, whatever framework they train with."""

from skate.train.collective.collectives import barrier, broadcast_from_rank_zero

__all__ = ["barrier", "broadcast_from_rank_zero"]
