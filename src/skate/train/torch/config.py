"""Connects workers as a process group of torch.distributed."""

from __future__ import annotations

import contextlib
import datetime
import difflib
import logging
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import skate
from skate.air import _arguments as arguments
from skate.train._failures.errors import TrainingFailedError
from skate.train._frameworks import addresses
from skate.train._workers.company import Company
from skate.train.backend import Backend, BackendConfig
from skate.train.constants import DEFAULT_TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S as _LEAVING_DEFAULT
from skate.train.constants import TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S as _LEAVING
from skate.train.torch import _launched, _rendezvous

if TYPE_CHECKING:
    from skate.train._workers.group import WorkerGroup

__all__ = ["TorchConfig"]

log = logging.getLogger(__name__)

# The first optimizer, and the first model that is wrapped, import torch._dynamo, which takes as long as torch itself.
_ALWAYS = ("torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo")
# Each takes a second or more, which would be lost in every worker, and again after each failure.
_SOMETIMES = (
    "torch.distributed.tensor",
    "torch.distributed.fsdp",
    "torch.distributed.checkpoint",
    "torch.distributed.pipelining",
    "accelerate",
    "lightning.pytorch",
    "pytorch_lightning",
    "transformers.trainer",
    "skate.train.lightning",
    "skate.train.huggingface.transformers",
)


# Torch's own; a program may add others, which are like none of these.
_BACKENDS = ("gloo", "nccl", "mpi", "ucc", "xccl")


@dataclass
class TorchConfig(BackendConfig):
    """How workers become a process group.

    Args:
        backend: "nccl", "gloo", or another that torch has; by default nccl where each worker has a GPU of its own, and
            gloo where they have none, or share one.
        init_method: "env" or "tcp", as in Ray. Both do the same: workers find each other through a file in the
            session's folder, or, on a cluster, through a server that rank 0 starts on its node's address.
        timeout_s: Seconds after which a collective that does not come about fails.
    """

    backend: str | None = None
    init_method: str = "env"
    timeout_s: int = 1800

    def __post_init__(self) -> None:
        arguments.text("backend", self.backend, "the name of a backend, such as 'gloo'", optional=True)
        for part in re.split("[,:]", self.backend or ""):
            if part not in _BACKENDS and (close := difflib.get_close_matches(part, _BACKENDS, n=1)):
                raise ValueError(
                    f"`backend` is {self.backend!r}: torch has no {part!r}. Did you mean {close[0]!r}?"
                )
        arguments.choice("init_method", self.init_method, ("env", "tcp"))
        arguments.real("timeout_s", self.timeout_s, above_zero=True, unit="seconds")

    @property
    def backend_cls(self) -> type[Backend]:
        """The class that does it."""
        return _TorchBackend

    @property
    def train_func_context(self) -> Callable[[], Any]:
        """Runs the training function with its GPU as the current device: torch keeps that for each thread."""
        return _OnDevice

    def _company(self) -> contextlib.AbstractContextManager[Company]:
        """Join the processes that torchrun has started together with this one, if it has."""
        return _launched.company(self)

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules that every worker needs, and others that the program has imported: its workers will too."""
        return (*_ALWAYS, *(name for name in _SOMETIMES if name in sys.modules), *_deepspeed())


def _deepspeed() -> tuple[str, ...]:
    """Name DeepSpeed, and what its first engine imports, if the program has it and there is no GPU.

    It looks for GPUs when it is imported, and after that workers that are forked could not use them.
    """
    accelerator = sys.modules.get("deepspeed.accelerator")
    if accelerator is None or accelerator.get_accelerator().device_name() != "cpu":
        return ()
    return ("deepspeed", "torch._inductor.compile_fx")


class _TorchBackend(Backend):
    share_cuda_visible_devices = True
    _meeting: _rendezvous.Rendezvous | None = None

    def on_start(self, worker_group: WorkerGroup, backend_config: TorchConfig) -> None:
        """Open the place to meet at, and let all workers join."""
        backend = _possible(backend_config.backend, _sharing_a_gpu(worker_group))
        hosts = addresses.hosts(worker_group)
        # Where workers are not forked with torch (ADR 18), each takes seconds to import it: side by side, and before
        # anybody waits for anybody with a time limit.
        worker_group.execute(_load)
        self._meeting = worker_group.execute_single(
            0, _rendezvous.open_store, hosts[0], len(worker_group), backend_config.timeout_s
        )
        skate.get(
            [
                worker_group.execute_single_async(rank, _join, backend_config, backend, self._meeting, host)
                for rank, host in enumerate(hosts)
            ]
        )

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: TorchConfig) -> None:
        """Take the group apart, so that no worker sees another vanish; for as long as that may take."""
        limit = float(os.environ.get(_LEAVING, _LEAVING_DEFAULT))
        leaving = worker_group.execute_async(_leave)
        left, late = skate.wait(leaving, num_returns=len(leaving), timeout=limit)
        skate.get(left)
        if late:
            log.warning(
                "%d of %d workers have not left their process group within %g s (%s): they are ended as they are",
                len(late),
                len(leaving),
                limit,
                _LEAVING,
            )
        elif self._meeting is not None:
            worker_group.execute_single(0, _rendezvous.close, self._meeting)


def _sharing_a_gpu(worker_group: WorkerGroup) -> list[int]:
    """Return the ranks, two or more, that have the same GPU; none if each has its own."""
    holders: dict[tuple[str, str], list[int]] = {}
    for member in worker_group.members:
        for gpu in member.whereabouts.gpu_ids:
            holders.setdefault((member.whereabouts.node_id, gpu), []).append(member.place.world_rank)
    most = max(holders.values(), key=len, default=[])
    return most if len(most) > 1 else []


def _possible(backend: str | None, sharing: list[int]) -> str | None:
    """Return what workers can talk through: what was asked for, or None if it depends on their devices.

    Raises:
        TrainingFailedError: It is nccl, which refuses two ranks on one GPU, at their first collective operation.
    """
    if not sharing:
        return backend
    ranks = f"ranks {', '.join(map(str, sharing))} have the same GPU"
    if backend is None:
        log.warning("%s, which nccl does not allow: they use gloo, which is slower", ranks)
        return "gloo"
    if "nccl" in backend:
        raise TrainingFailedError(
            f"{ranks}, which nccl does not allow: give each worker a whole GPU in ScalingConfig, or let them use gloo, "
            "with TorchConfig(backend='gloo') or without a backend"
        )
    return backend


def _load() -> None:
    import torch.distributed  # noqa: F401  # it is what joining needs

    import skate.train.torch._devices  # noqa: F401


def _join(config: TorchConfig, backend: str | None, meeting: _rendezvous.Rendezvous, host: str) -> None:
    import torch
    import torch.distributed as dist

    from skate.train.torch._devices import get_device

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = _rendezvous.connect(meeting, host, world_size, config.timeout_s)
    if "OMP_NUM_THREADS" not in os.environ:
        # Each worker as many threads as it has CPUs: with all processors each, they take them from one another.
        cpus = skate.get_runtime_context().get_assigned_resources().get("CPU", 1)
        os.environ["OMP_NUM_THREADS"] = str(max(1, int(cpus)))
    # It was read when torch was imported, before the fork.
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"].partition(",")[0]))
    device = get_device()
    if device.type == "cpu":
        # DeepSpeed looks when it is imported, and would take a GPU that is another worker's.
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    backend = backend or ("nccl" if device.type == "cuda" else "gloo")
    dist.init_process_group(
        backend,
        store=store,
        rank=rank,
        world_size=world_size,
        timeout=datetime.timedelta(seconds=config.timeout_s),
        # Or nccl guesses, for a barrier, that a rank has the GPU of that number; if it has not, the barrier hangs.
        device_id=device if device.type == "cuda" and "nccl" in backend else None,
    )


def _leave() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


class _OnDevice:
    """Makes GPU and number of threads those of this thread, and tells Accelerate its device, which it would choose."""

    def __enter__(self) -> None:
        import torch

        from skate.train.torch._devices import use_device

        # OpenMP keeps the number for each thread. What torch was told in another one it hands on when it next starts
        # threads itself; the libraries below it would start as many as there are processors until then.
        torch.set_num_threads(torch.get_num_threads())
        device = use_device()
        told = {"ACCELERATE_TORCH_DEVICE": str(device)}
        if device.type == "cpu":
            told["ACCELERATE_USE_CPU"] = "true"  # without it, it trains in one process where there is no GPU
        self._before = {name: os.environ.get(name) for name in told}
        os.environ.update(told)

    def __exit__(self, *_: object) -> None:
        # Without workers this process is the user's own.
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
