"""What connects the workers of a run with each other before they train: the extension point for frameworks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from skate.train._workers.company import Company

if TYPE_CHECKING:
    from skate.train._workers.group import WorkerGroup

__all__ = ["Backend", "BackendConfig"]


class Backend:
    """Prepares the workers of a run; what it does on a worker it does with `worker_group.execute`.

    Attributes:
        share_cuda_visible_devices: Let each worker see the GPUs of all workers on its node.
    """

    share_cuda_visible_devices: bool = False

    def on_start(self, worker_group: WorkerGroup, backend_config: Any) -> None:
        """The workers have started."""

    def on_training_start(self, worker_group: WorkerGroup, backend_config: Any) -> None:
        """The workers know their ranks, and are about to train."""

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: Any) -> None:
        """The workers are about to end."""


class BackendConfig:
    """The settings of a backend; also the name of its class."""

    @property
    def backend_cls(self) -> type[Backend]:
        """The class that does it."""
        return Backend

    @property
    def train_func_context(self) -> Callable[[], contextlib.AbstractContextManager[Any]]:
        """A context that the training function runs in, on each worker."""
        return contextlib.nullcontext

    @property
    def framework(self) -> None:
        """Ray's name of the framework, by which it counts who uses which: there is none."""
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the settings by their names."""
        return dict(vars(self))

    def _company(self) -> contextlib.AbstractContextManager[Company]:
        """Join those who train with this process although Skate has started no workers: by default, nobody does."""
        return contextlib.nullcontext(Company())

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules that every worker needs."""
        return ()
