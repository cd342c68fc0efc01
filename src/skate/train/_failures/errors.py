"""What can go wrong with a run as a whole."""

from __future__ import annotations

from skate.exceptions import OutOfDiskError


class TrainingFailedError(RuntimeError):
    """The run has ended without having finished."""


class WorkerGroupError(TrainingFailedError):
    """Workers failed, more often than the run may go on from.

    Attributes:
        worker_failures: What each failed worker raised, by its world rank; the first to fail comes first.
    """

    def __init__(self, error_message: str, worker_failures: dict[int, Exception]) -> None:
        super().__init__(error_message)
        self.worker_failures = worker_failures

    def __reduce__(self) -> tuple[type[WorkerGroupError], tuple[str, dict[int, Exception]]]:
        return type(self), (str(self), self.worker_failures)


class ControllerError(TrainingFailedError):
    """What drives the run failed: its storage, its workers' start, a callback.

    Attributes:
        controller_failure: What was raised.
    """

    def __init__(self, controller_failure: Exception) -> None:
        super().__init__(f"the run could not be driven on: {controller_failure}")
        self.controller_failure = controller_failure

    def __reduce__(self) -> tuple[type[ControllerError], tuple[Exception]]:
        return type(self), (self.controller_failure,)


class HungWorkerError(RuntimeError):
    """A worker makes no progress; says where it stands."""


class StorageFullError(OutOfDiskError, OSError):
    """A run, or a copy of a checkpoint, does not fit on its disk. What was there before is as it was."""
