"""Backends, which connect the workers of a run before they train: the extension point for frameworks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from skate.train._workers.local_group import LocalWorkerGroup

if TYPE_CHECKING:
    from skate.train._workers.group import WorkerGroup

__all__ = ["Backend", "BackendConfig"]


class Backend:
    """Prepares the workers of a run, on which it runs functions with `worker_group.execute`.

    Attributes:
        share_cuda_visible_devices: Whether each worker sees the GPUs of all workers on its node.
    """

    share_cuda_visible_devices: bool = False

    def on_start(self, worker_group: WorkerGroup, backend_config: Any) -> None:
        """Called after the workers have started."""

    def on_training_start(self, worker_group: WorkerGroup, backend_config: Any) -> None:
        """Called when the workers know their ranks, before they train."""

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: Any) -> None:
        """Called before the workers end."""


class BackendConfig:
    """The configuration of a backend, which also names the backend's class."""

    @property
    def backend_cls(self) -> type[Backend]:
        """The class of the backend."""
        return Backend

    @property
    def train_func_context(self) -> Callable[[], contextlib.AbstractContextManager[Any]]:
        """A context manager for the training function, on each worker."""
        return contextlib.nullcontext

    @property
    def framework(self) -> None:
        """Always None: in Ray, the name of the framework for usage statistics."""
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the settings by name."""
        return dict(vars(self))

    def _local_worker_group(self) -> contextlib.AbstractContextManager[LocalWorkerGroup]:
        """Join the worker group of a run for which Skate starts no workers: by default, this process alone."""
        return contextlib.nullcontext(LocalWorkerGroup())

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules that every worker needs."""
        return ()
