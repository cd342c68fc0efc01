"""Connects workers as a communicator of XGBoost's, so that they grow one model together."""

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

_tracker: Any = None  # on rank 0: what the others meet at, kept for as long as the process lives
_arguments: dict[str, Any] | None = None  # on each of several workers: how to find it


@dataclass
class XGBoostConfig(BackendConfig):
    """How workers become a communicator.

    Args:
        xgboost_communicator: "rabit", which is the only one.

    Raises:
        NotImplementedError: It is another.
    """

    xgboost_communicator: str = "rabit"

    def __post_init__(self) -> None:
        if self.xgboost_communicator != "rabit":
            raise NotImplementedError(
                f"`xgboost_communicator` must be 'rabit', the only one there is, got {self.xgboost_communicator!r}."
            )

    @property
    def backend_cls(self) -> type[Backend]:
        """The class that does it."""
        return _XGBoostBackend

    @property
    def train_func_context(self) -> Callable[[], Any]:
        """Runs the training function as a member of the communicator."""
        return _Communicator

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules that every worker needs. Importing XGBoost starts no threads: it is safe to fork afterwards."""
        return ("xgboost", "pandas")


class _XGBoostBackend(Backend):
    def on_training_start(self, worker_group: WorkerGroup, backend_config: XGBoostConfig) -> None:
        """Start the tracker beside rank 0, and tell all workers where it is."""
        size = len(worker_group)
        if size == 1:
            return
        found = worker_group.execute_single(0, _track, addresses.hosts(worker_group)[0], size)
        skate.get([worker_group.execute_single_async(rank, _learn, found, rank) for rank in range(size)])


def _track(host: str, workers: int) -> dict[str, Any]:
    """Start the tracker on a port that the operating system chooses, and return how to find it."""
    global _tracker
    from xgboost.tracker import RabitTracker

    _tracker = RabitTracker(n_workers=workers, host_ip=host, sortby="task")
    _tracker.start()
    return dict(_tracker.worker_args())


def _learn(arguments: dict[str, Any], rank: int) -> None:
    """Note where the tracker is. Ranks are XGBoost's own, by the order of this name: so they are ours."""
    global _arguments
    _arguments = {**arguments, "dmlc_task_id": f"{rank:08d}"}


class _Communicator:
    """Joins the other workers for the time of a training function."""

    def __enter__(self) -> None:
        from xgboost import collective

        threads.limit_openmp()
        if _arguments is not None:
            collective.init(**_arguments)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        from xgboost import collective

        # Leaving waits for the others. A worker that has failed must not: they may never come.
        if _arguments is not None and kind is None:
            collective.finalize()
