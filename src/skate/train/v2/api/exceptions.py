"""What can go wrong with a run as a whole, under Ray's path."""

from skate.train._failures.errors import (
    ControllerError,
    NCCLHangError,
    PreemptionError,
    TrainingFailedError,
    WorkerGroupError,
)

__all__ = ["ControllerError", "NCCLHangError", "PreemptionError", "TrainingFailedError", "WorkerGroupError"]
