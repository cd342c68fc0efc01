"""What can go wrong with a run as a whole."""

from __future__ import annotations

from typing import Protocol

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


class NCCLHangError(WorkerGroupError):
    """Ray's error for a hang that NCCL itself reports. Skate raises it nowhere.

    A hang is a WorkerGroupError here, whose `worker_failures` say where each hung worker stands.
    """


class _Preemption(Protocol):
    """What is told about nodes that are taken away."""

    @property
    def preempted_ranks(self) -> list[int]:
        """The world ranks on these nodes."""


class PreemptionError(TrainingFailedError):
    """Nodes were taken away. Skate raises it nowhere: no node of one machine announces its end.

    Attributes:
        preemption_info: Which nodes and ranks.
        drain_timed_out: Whether workers still ran when the time was over.
    """

    def __init__(self, preemption_info: _Preemption, drain_timed_out: bool = False) -> None:
        super().__init__(f"the nodes of ranks {preemption_info.preempted_ranks} were taken away")
        self.preemption_info = preemption_info
        self.drain_timed_out = drain_timed_out

    def __reduce__(self) -> tuple[type[PreemptionError], tuple[_Preemption, bool]]:
        return type(self), (self.preemption_info, self.drain_timed_out)


class SessionMisuseError(RuntimeError):
    """A function that needs a training function around it was called outside of one."""


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
