"""What users can hook into a run, under Ray's path."""

from skate.train._run.callbacks import UserCallback

__all__ = ["UserCallback"]
