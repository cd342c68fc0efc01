"""Checkpoints by ids: which rows a job has written, so that a later run of the same program leaves them out."""

from skate.data.checkpoint.interfaces import CheckpointBackend, CheckpointConfig

__all__ = ["CheckpointBackend", "CheckpointConfig"]
