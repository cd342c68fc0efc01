"""The backend that connects workers as a process group of torch.distributed."""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import skate
from skate._base.suggestions import closest
from skate.air import _arguments as arguments
from skate.train._failures.errors import TrainingFailedError
from skate.train._frameworks import addresses
from skate.train._workers import sessions
from skate.train._workers.local_group import LocalWorkerGroup
from skate.train._workers.sessions import Ranks
from skate.train.backend import Backend, BackendConfig
from skate.train.constants import DEFAULT_TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S as _SHUTDOWN_TIMEOUT_S
from skate.train.constants import TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S as _SHUTDOWN_TIMEOUT_VARIABLE
from skate.train.torch import _rendezvous
from skate.train.torch._store_broadcast import StoreBroadcast

if TYPE_CHECKING:
    from skate.train._workers.group import WorkerGroup

__all__ = ["TorchConfig"]

log = logging.getLogger(__name__)

# The first optimizer and the first wrapped model import torch._dynamo, which takes as long as torch itself.
_PRELOAD = ("torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo")
# Preloaded if the program has imported them: each takes a second or more, in every worker and after every failure.
_PRELOAD_IF_IMPORTED = (
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

# Torch's own backends; a program may register others, with dissimilar names.
_BACKENDS = ("gloo", "nccl", "mpi", "ucc", "xccl")

# The variables that torchrun, or a compatible launcher, sets.
_LAUNCHER_VARIABLES = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)


@dataclass
class TorchConfig(BackendConfig):
    """How workers form a process group.

    Args:
        backend: "nccl", "gloo", or another backend of torch. The default is nccl if each worker has its own GPU, and
            gloo if workers have no GPU or share one.
        init_method: "env" or "tcp", as in Ray. Both do the same: workers find each other through a file in the
            session's folder or, on a cluster, through a server that rank 0 starts on its node's address.
        timeout_s: Seconds after which a collective operation fails.
    """

    backend: str | None = None
    init_method: str = "env"
    timeout_s: int = 1800

    def __post_init__(self) -> None:
        arguments.text("backend", self.backend, "the name of a backend, such as 'gloo'", optional=True)
        for part in re.split("[,:]", self.backend or ""):
            if part not in _BACKENDS and (close := closest(part, _BACKENDS)):
                raise ValueError(
                    f"`backend` is {self.backend!r}: torch has no {part!r}. Did you mean {close!r}?"
                )
        arguments.choice("init_method", self.init_method, ("env", "tcp"))
        arguments.real("timeout_s", self.timeout_s, above_zero=True, unit="seconds")

    @property
    def backend_cls(self) -> type[Backend]:
        """The class of the backend."""
        return _TorchBackend

    @property
    def train_func_context(self) -> Callable[[], Any]:
        """Makes the worker's GPU the current device, which torch keeps per thread."""
        return _OnDevice

    def _local_worker_group(self) -> contextlib.AbstractContextManager[LocalWorkerGroup]:
        """Join the processes that torchrun has started together with this one, if any."""
        return _join_launched(self)

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules that every worker needs, and slow ones that the program has imported."""
        imported = (name for name in _PRELOAD_IF_IMPORTED if name in sys.modules)
        return (*_PRELOAD, *imported, *_deepspeed_modules())


def _deepspeed_modules() -> tuple[str, ...]:
    """Return the modules of DeepSpeed's first engine, if the program has imported it and there is no GPU.

    DeepSpeed initializes GPUs when it is imported, after which forked workers could not use them.
    """
    accelerator = sys.modules.get("deepspeed.accelerator")
    if accelerator is None or accelerator.get_accelerator().device_name() != "cpu":
        return ()
    return ("deepspeed", "torch._inductor.compile_fx")


class _TorchBackend(Backend):
    share_cuda_visible_devices = True
    _store: _rendezvous.Rendezvous | None = None

    def on_start(self, worker_group: WorkerGroup, backend_config: TorchConfig) -> None:
        """Open the rendezvous store, and let all workers join."""
        backend = _choose_backend(backend_config.backend, _ranks_sharing_a_gpu(worker_group))
        hosts = addresses.hosts(worker_group)
        # Workers that are not forked with torch (ADR 18) take seconds to import it. They do so in parallel, before
        # any of them waits for another with a time-out.
        worker_group.execute(_load)
        self._store = worker_group.execute_single(
            0, _rendezvous.open_store, hosts[0], len(worker_group), backend_config.timeout_s
        )
        skate.get(
            [
                worker_group.execute_single_async(rank, _join, backend_config, backend, self._store, host)
                for rank, host in enumerate(hosts)
            ]
        )

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: TorchConfig) -> None:
        """Destroy the process group, within a time-out, before the first worker ends."""
        timeout = float(os.environ.get(_SHUTDOWN_TIMEOUT_VARIABLE, _SHUTDOWN_TIMEOUT_S))
        calls = worker_group.execute_async(_leave)
        left, late = skate.wait(calls, num_returns=len(calls), timeout=timeout)
        skate.get(left)
        if late:
            log.warning(
                "%d of %d workers have not left their process group within %g s (%s): ending them anyway",
                len(late),
                len(calls),
                timeout,
                _SHUTDOWN_TIMEOUT_VARIABLE,
            )
        elif self._store is not None:
            worker_group.execute_single(0, _rendezvous.close, self._store)


def _ranks_sharing_a_gpu(worker_group: WorkerGroup) -> list[int]:
    """Return two or more ranks that have the same GPU; none if each has its own."""
    holders: dict[tuple[str, str], list[int]] = {}
    for member in worker_group.members:
        for gpu in member.location.gpu_ids:
            holders.setdefault((member.location.node_id, gpu), []).append(member.ranks.world_rank)
    most = max(holders.values(), key=len, default=[])
    return most if len(most) > 1 else []


def _choose_backend(backend: str | None, sharing: list[int]) -> str | None:
    """Return the backend of the process group: the requested one, or None if it depends on the devices.

    Raises:
        TrainingFailedError: It is nccl, which fails with two ranks on one GPU at their first collective operation.
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
    import torch.distributed  # noqa: F401  # needed by _join

    import skate.train.torch._devices  # noqa: F401


def _join(config: TorchConfig, backend: str | None, rendezvous: _rendezvous.Rendezvous, host: str) -> None:
    import torch
    import torch.distributed as dist

    from skate.train.torch._devices import get_device

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = _rendezvous.connect(rendezvous, host, world_size, config.timeout_s)
    if "OMP_NUM_THREADS" not in os.environ:
        # As many threads as the worker has CPUs: otherwise each worker would use all processors.
        cpus = skate.get_runtime_context().get_assigned_resources().get("CPU", 1)
        os.environ["OMP_NUM_THREADS"] = str(max(1, int(cpus)))
    # Torch read the variable when it was imported, before the fork.
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"].partition(",")[0]))
    device = get_device()
    if device.type == "cpu":
        # DeepSpeed chooses a device when it is imported, and would take the GPU of another worker.
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    backend = backend or ("nccl" if device.type == "cuda" else "gloo")
    dist.init_process_group(
        backend,
        store=store,
        rank=rank,
        world_size=world_size,
        timeout=datetime.timedelta(seconds=config.timeout_s),
        # Without it, nccl assumes in a barrier that a rank has the GPU of its number; if it has not, it hangs.
        device_id=device if device.type == "cuda" and "nccl" in backend else None,
    )


def _leave() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


@contextlib.contextmanager
def _join_launched(config: TorchConfig) -> Iterator[LocalWorkerGroup]:
    """Join the other processes of the launcher, if there is one, for the duration of a `with` block."""
    if sessions.is_active() or not all(name in os.environ for name in _LAUNCHER_VARIABLES):
        # Inside a training function, the variables are those of the outer run.
        yield LocalWorkerGroup()
        return
    import torch
    import torch.distributed as dist

    local_rank, local_size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    joins = not dist.is_initialized()
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
    if joins:
        backend = config.backend or ("nccl" if torch.cuda.is_available() else "gloo")
        dist.init_process_group(
            backend,
            timeout=datetime.timedelta(seconds=config.timeout_s),
            device_id=torch.device("cuda", local_rank) if "nccl" in backend else None,
        )
    rank = dist.get_rank()
    broadcast = StoreBroadcast(
        dist.distributed_c10d._get_default_store(), rank, dist.get_world_size(), config.timeout_s
    )
    ranks = Ranks(rank, dist.get_world_size(), local_rank, local_size, rank // local_size)
    try:
        yield LocalWorkerGroup(ranks, broadcast)
    finally:
        if joins:
            dist.destroy_process_group()


class _OnDevice:
    """Sets the GPU and the number of threads of this thread, and the device that Accelerate uses."""

    def __enter__(self) -> None:
        import torch

        from skate.train.torch._devices import use_device

        # OpenMP keeps the number of threads per thread. Torch passes on a number that was set in another thread only
        # when it next starts threads itself; until then, other libraries would use all processors.
        torch.set_num_threads(torch.get_num_threads())
        device = use_device()
        variables = {"ACCELERATE_TORCH_DEVICE": str(device)}
        if device.type == "cpu":
            variables["ACCELERATE_USE_CPU"] = "true"  # otherwise it trains in one process if there is no GPU
        self._before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)

    def __exit__(self, *_: object) -> None:
        # Restore the variables: without workers, this is the user's process.
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
