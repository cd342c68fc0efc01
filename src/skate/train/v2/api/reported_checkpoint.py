"""Checkpoints that were reported, under Ray's path."""

from skate.train._workers.context import ReportedCheckpoint, ReportedCheckpointStatus

__all__ = ["ReportedCheckpoint", "ReportedCheckpointStatus"]
