"""Reported checkpoints, under Ray's path."""

from skate.train._workers.train_context import ReportedCheckpoint, ReportedCheckpointStatus

__all__ = ["ReportedCheckpoint", "ReportedCheckpointStatus"]
