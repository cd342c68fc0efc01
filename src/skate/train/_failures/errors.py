"""The exceptions of a run."""

from __future__ import annotations

from typing import Protocol

from skate.exceptions import OutOfDiskError


class TrainingFailedError(RuntimeError):
    """A run ended before it finished."""


class WorkerGroupError(TrainingFailedError):
    """Workers failed more than `max_failures` times.

    Attributes:
        worker_failures: The exception of each failed worker, by world rank; the first to fail comes first.
    """

    def __init__(self, error_message: str, worker_failures: dict[int, Exception]) -> None:
        super().__init__(error_message)
        self.worker_failures = worker_failures

    def __reduce__(self) -> tuple[type[WorkerGroupError], tuple[str, dict[int, Exception]]]:
        return type(self), (str(self), self.worker_failures)


class NCCLHangError(WorkerGroupError):
    """Ray's error for a hang that NCCL reports. Skate never raises it.

    Skate raises a WorkerGroupError for a hang, whose `worker_failures` name the line that each hung worker is in.
    """


class _Preemption(Protocol):
    """The part of PreemptionInfo that the error needs."""

    @property
    def preempted_ranks(self) -> list[int]:
        """The world ranks on the preempted nodes."""


class PreemptionError(TrainingFailedError):
    """Nodes were preempted. Skate never raises it: the node of a single machine is not preempted.

    Attributes:
        preemption_info: The nodes and ranks.
        drain_timed_out: Whether workers still ran at the deadline.
    """

    def __init__(self, preemption_info: _Preemption, drain_timed_out: bool = False) -> None:
        super().__init__(f"the nodes of ranks {preemption_info.preempted_ranks} were preempted")
        self.preemption_info = preemption_info
        self.drain_timed_out = drain_timed_out

    def __reduce__(self) -> tuple[type[PreemptionError], tuple[_Preemption, bool]]:
        return type(self), (self.preemption_info, self.drain_timed_out)


class SessionMisuseError(RuntimeError):
    """A function for training functions was called outside of one."""


class ControllerError(TrainingFailedError):
    """The controller of a run failed: its storage, the start of its workers, or a callback.

    Attributes:
        controller_failure: The exception.
    """

    def __init__(self, controller_failure: Exception) -> None:
        super().__init__(f"the controller of the run failed: {controller_failure}")
        self.controller_failure = controller_failure

    def __reduce__(self) -> tuple[type[ControllerError], tuple[Exception]]:
        return type(self), (self.controller_failure,)


class HungWorkerError(RuntimeError):
    """A worker makes no progress; the text names the line that it is in."""


class StorageFullError(OutOfDiskError, OSError):
    """A run, or a copy of a checkpoint, does not fit on its disk. Existing files are unchanged."""
