"""What can go wrong with a run as a whole, under Ray's path."""

from skate.train._failures.errors import ControllerError, TrainingFailedError, WorkerGroupError

__all__ = ["ControllerError", "TrainingFailedError", "WorkerGroupError"]
