"""The backend that connects workers with XGBoost's communicator, so that they train one model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import skate
from skate.train._frameworks import addresses, threads
from skate.train.backend import Backend, BackendConfig

if TYPE_CHECKING:
    from skate.train._workers.group import WorkerGroup

__all__ = ["XGBoostConfig"]

_tracker: Any = None  # on rank 0, alive until the process ends
_arguments: dict[str, Any] | None = None  # the address of the tracker; None for a single worker


@dataclass
class XGBoostConfig(BackendConfig):
    """How workers are connected.

    Args:
        xgboost_communicator: The communicator, which must be "rabit".

    Raises:
        NotImplementedError: It is another one.
    """

    xgboost_communicator: str = "rabit"

    def __post_init__(self) -> None:
        if self.xgboost_communicator != "rabit":
            raise NotImplementedError(
                f"`xgboost_communicator` must be 'rabit', the only one supported, got {self.xgboost_communicator!r}."
            )

    @property
    def backend_cls(self) -> type[Backend]:
        """The class of the backend."""
        return _XGBoostBackend

    @property
    def train_func_context(self) -> Callable[[], Any]:
        """Joins the communicator for the duration of the training function."""
        return _Communicator

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules that every worker needs. Importing XGBoost starts no threads, so forking afterwards is safe."""
        return ("xgboost", "pandas")


class _XGBoostBackend(Backend):
    def on_training_start(self, worker_group: WorkerGroup, backend_config: XGBoostConfig) -> None:
        """Start the tracker on rank 0, and send its address to all workers."""
        size = len(worker_group)
        if size == 1:
            return
        found = worker_group.execute_single(0, _start_tracker, addresses.hosts(worker_group)[0], size)
        skate.get(
            [worker_group.execute_single_async(rank, _set_arguments, found, rank) for rank in range(size)]
        )


def _start_tracker(host: str, workers: int) -> dict[str, Any]:
    """Start the tracker on a port that the operating system chooses, and return its address."""
    global _tracker
    from xgboost.tracker import RabitTracker

    _tracker = RabitTracker(n_workers=workers, host_ip=host, sortby="task")
    _tracker.start()
    return dict(_tracker.worker_args())


def _set_arguments(arguments: dict[str, Any], rank: int) -> None:
    """Set the address of the tracker. XGBoost assigns ranks in the order of task ids, so that they equal ours."""
    global _arguments
    _arguments = {**arguments, "dmlc_task_id": f"{rank:08d}"}


class _Communicator:
    """Joins the communicator for the duration of a training function."""

    def __enter__(self) -> None:
        from xgboost import collective

        threads.limit_openmp()
        if _arguments is not None:
            collective.init(**_arguments)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        from xgboost import collective

        # Leaving waits for the other workers, which may never come if this one has failed.
        if _arguments is not None and kind is None:
            collective.finalize()
