"""Connects workers as a process group of torch.distributed."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import skate
from skate.train.backend import Backend, BackendConfig

if TYPE_CHECKING:
    from skate.train._group import WorkerGroup

__all__ = ["TorchConfig"]

_store: Any = None  # on rank 0: the server that the others meet at, kept for as long as the process lives


@dataclass
class TorchConfig(BackendConfig):
    """How workers become a process group.

    Args:
        backend: "nccl", "gloo", or another that torch has; by default nccl with GPUs and gloo without.
        init_method: "env" or "tcp": how they find each other.
        timeout_s: Seconds after which a collective that does not come about fails.
    """

    backend: str | None = None
    init_method: str = "env"
    timeout_s: int = 1800

    def __post_init__(self) -> None:
        if self.init_method not in ("env", "tcp"):
            raise ValueError(f"init_method is {self.init_method!r}: it must be 'env' or 'tcp'")

    @property
    def backend_cls(self) -> type[Backend]:
        """The class that does it."""
        return _TorchBackend

    @property
    def train_func_context(self) -> Callable[[], Any]:
        """Runs the training function with its GPU as the current device: torch keeps that for each thread."""
        return _OnDevice

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules that every worker needs."""
        return ("torch", "torch.distributed", "torch.nn.parallel")


class _TorchBackend(Backend):
    share_cuda_visible_devices = True

    def on_start(self, worker_group: WorkerGroup, backend_config: TorchConfig) -> None:
        """Open the place to meet at, and let all workers join."""
        host = worker_group.members[0].whereabouts.node_ip
        if len({member.whereabouts.node_id for member in worker_group.members}) == 1:
            host = "127.0.0.1"  # nobody else has to come in
        port = worker_group.execute_single(0, _open, host, len(worker_group), backend_config.timeout_s)
        skate.get(
            [
                worker_group.execute_single_async(member.place.world_rank, _join, backend_config, host, port)
                for member in worker_group.members
            ]
        )

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: TorchConfig) -> None:
        """Take the group apart, so that no worker sees another vanish."""
        worker_group.execute(_leave)


def _open(host: str, world_size: int, timeout: float) -> int:
    """Open the store on a port that nobody else has; the operating system chooses it, so that there is no race."""
    global _store
    import torch.distributed as dist

    _store = dist.TCPStore(  # type: ignore[attr-defined]
        host,
        0,
        world_size,
        is_master=True,
        timeout=datetime.timedelta(seconds=timeout),
        wait_for_workers=False,
    )
    port: int = _store.port
    return port


def _join(config: TorchConfig, host: str, port: int) -> None:
    import torch
    import torch.distributed as dist

    os.environ.update(
        {
            "MASTER_ADDR": host,
            "MASTER_PORT": str(port),
            # The store exists: whoever initialises from the environment, also a library, must not open another.
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }
    )
    if "OMP_NUM_THREADS" not in os.environ:
        # Each worker as many threads as it has CPUs: with all processors each, they take them from one another.
        cpus = skate.get_runtime_context().get_assigned_resources().get("CPU", 1)
        torch.set_num_threads(max(1, int(cpus)))
    backend = config.backend or ("nccl" if torch.cuda.is_available() else "gloo")
    dist.init_process_group(
        backend,
        init_method="env://",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=datetime.timedelta(seconds=config.timeout_s),
    )


def _leave() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


class _OnDevice:
    """Sets the worker's GPU as the current device of this thread, and tells Accelerate, which would choose by rank."""

    def __enter__(self) -> None:
        from skate.train.torch._devices import use_device

        os.environ["ACCELERATE_TORCH_DEVICE"] = str(use_device())

    def __exit__(self, *_: object) -> None:
        return
