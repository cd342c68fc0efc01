"""What users can hook into a run, under Ray's path."""

from skate.train._callbacks import UserCallback

__all__ = ["UserCallback"]
