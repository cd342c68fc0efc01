"""Utilities for training functions with torch: they prepare models, data loaders and optimizers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler

from skate.air import _arguments as arguments
from skate.train._workers import sessions
from skate.train.torch._devices import get_device, get_devices

__all__ = [
    "TorchWorkerProfiler",
    "accelerate",
    "backward",
    "enable_reproducibility",
    "get_device",
    "get_devices",
    "prepare_data_loader",
    "prepare_model",
    "prepare_optimizer",
]


class TorchWorkerProfiler:
    """A class that Ray has removed: use `torch.profiler` in the training function.

    Raises:
        DeprecationWarning: Always, as in Ray.
    """

    WORKER_TRACE_DIR_NAME = "pytorch_profiler_worker_traces"

    def __init__(self, trace_dir: str | None = None) -> None:
        raise DeprecationWarning(
            "TorchWorkerProfiler is deprecated: use torch.profiler in the training function"
        )


def prepare_model(
    model: torch.nn.Module,
    move_to_device: bool | torch.device = True,
    parallel_strategy: str | None = "ddp",
    parallel_strategy_kwargs: dict[str, Any] | None = None,
) -> torch.nn.Module:
    """Move a model to this worker's device, and synchronize its gradients between all workers.

    Args:
        model: The model.
        move_to_device: Whether to move it, or the device to move it to.
        parallel_strategy: "ddp" keeps a full copy on each worker; "fsdp" shards it with
            `torch.distributed.fsdp.fully_shard`; None does not wrap it. With one worker, the model is not wrapped.
        parallel_strategy_kwargs: Arguments for `DistributedDataParallel` or `fully_shard`.

    Raises:
        ValueError: The strategy is unknown.
    """
    sessions.current("prepare_model()")
    arguments.choice("parallel_strategy", parallel_strategy, ("ddp", "fsdp", None))
    arguments.instance("model", model, torch.nn.Module, "a torch.nn.Module")
    if not isinstance(move_to_device, bool | torch.device | None):
        arguments.refuse("move_to_device", "True, False or a torch.device", move_to_device)
    options = arguments.mapping("parallel_strategy_kwargs", parallel_strategy_kwargs)
    device = move_to_device if isinstance(move_to_device, torch.device) else get_device()
    if move_to_device:
        model = model.to(device)
    if (precision := _precision()) is not None:
        hooks = _Autocast(*precision)
        model.register_forward_pre_hook(hooks.before)
        model.register_forward_hook(hooks.after, always_call=True)
    if parallel_strategy is None or _world_size() == 1:
        return model
    if parallel_strategy == "fsdp":
        from torch.distributed.fsdp import fully_shard

        sharded: torch.nn.Module = fully_shard(model, **options)  # type: ignore[assignment]
        return sharded
    if device.type == "cuda":
        options = {"device_ids": [device], "output_device": device, **options}
    return torch.nn.parallel.DistributedDataParallel(model, **options)


def prepare_data_loader(
    data_loader: DataLoader[Any],
    add_dist_sampler: bool = True,
    move_to_device: bool = True,
    auto_transfer: bool = True,
) -> DataLoader[Any]:
    """Split the rows of a data loader between the workers, and move batches to the worker's device.

    Args:
        data_loader: The loader, the same on each worker.
        add_dist_sampler: Whether to split the rows. Call `loader.sampler.set_epoch(epoch)` before each pass for another
            order. A loader with a custom sampler keeps it.
        move_to_device: Whether to move batches to the worker's device.
        auto_transfer: Whether to copy the next batch to the GPU while the model processes the current one.
    """
    session = sessions.current("prepare_data_loader()")
    arguments.instance("data_loader", data_loader, DataLoader, "a torch.utils.data.DataLoader")
    for name, value in (
        ("add_dist_sampler", add_dist_sampler),
        ("move_to_device", move_to_device),
        ("auto_transfer", auto_transfer),
    ):
        arguments.flag(name, value)
    if add_dist_sampler and session.ranks.world_size > 1 and _can_be_split(data_loader):
        data_loader = _split(data_loader, session.ranks)
    if not move_to_device:
        return data_loader
    device = get_device()
    ahead = auto_transfer and device.type == "cuda"
    return _OnDevice(data_loader, device, ahead=ahead)  # type: ignore[return-value]


def prepare_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Return an optimizer that scales gradients, if `accelerate(amp=True)` was called on a GPU."""
    arguments.instance("optimizer", optimizer, torch.optim.Optimizer, "a torch.optim.Optimizer")
    if _precision() is None or get_device().type != "cuda":
        return optimizer
    return _ScaledOptimizer(optimizer, _scaler())


def accelerate(amp: bool = False) -> None:
    """Choose the precision of the training.

    Args:
        amp: Whether models that are prepared afterwards compute in automatic mixed precision.

    Raises:
        RuntimeError: It was called before, or no training function runs in this process.
    """
    global _chosen
    session = sessions.current("accelerate()")
    arguments.flag("amp", amp)
    if _chosen is not None and _chosen[0] is session:
        raise RuntimeError(
            "accelerate() can be called once in a training function, before anything is prepared."
        )
    kind = get_device().type
    dtype = torch.float16 if kind == "cuda" else torch.bfloat16
    _chosen = (session, (kind, dtype) if amp else None)


def backward(tensor: torch.Tensor) -> None:
    """Compute gradients of a loss, scaled if `accelerate(amp=True)` was called."""
    arguments.instance("tensor", tensor, torch.Tensor, "a torch.Tensor")
    if _precision() is not None and get_device().type == "cuda":
        _scaler().scale(tensor).backward()
    else:
        tensor.backward()  # type: ignore[no-untyped-call]


def enable_reproducibility(seed: int = 0) -> None:
    """Make a run reproducible: set seeds, and use deterministic algorithms.

    Args:
        seed: The seed for Python, NumPy and torch, the same on all workers.
    """
    import numpy as np

    arguments.whole("seed", seed, high=2**32 - 1)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False


# ------------------------------------------------------------ precision

_chosen: tuple[sessions.Session, tuple[str, torch.dtype] | None] | None = None  # by a training function
_the_scaler: Any = None


def _precision() -> tuple[str, torch.dtype] | None:
    """Return the precision that the current training function has chosen; a process may run several in turn."""
    if _chosen is None or not sessions.is_active() or _chosen[0] is not sessions.current("accelerate()"):
        return None
    return _chosen[1]


def _scaler() -> Any:
    global _the_scaler
    if _the_scaler is None:
        _the_scaler = torch.amp.GradScaler("cuda")
    return _the_scaler


class _Autocast:
    """Hooks that run a model in mixed precision, without changing its class or the names of its weights."""

    def __init__(self, kind: str, dtype: torch.dtype) -> None:
        self._kind, self._dtype = kind, dtype
        self._open: list[torch.autocast] = []

    def before(self, module: torch.nn.Module, args: Any) -> None:
        context = torch.autocast(self._kind, dtype=self._dtype)
        context.__enter__()  # type: ignore[no-untyped-call]
        self._open.append(context)

    def after(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        self._open.pop().__exit__(None, None, None)


class _ScaledOptimizer(torch.optim.Optimizer):
    """An optimizer that takes steps through a gradient scaler."""

    def __init__(self, optimizer: torch.optim.Optimizer, scaler: Any) -> None:
        self.optimizer = optimizer
        self._scaler = scaler

    def step(self, closure: Any = None) -> Any:
        if closure is not None:
            raise ValueError(
                "a step with a closure cannot be scaled: call step() without one, or leave out amp"
            )
        self._scaler.step(self.optimizer)
        self._scaler.update()

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state_dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["optimizer"], name)


# ------------------------------------------------------------ data


def _world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _can_be_split(loader: DataLoader[Any]) -> bool:
    """Return whether a distributed sampler can replace the loader's, which must be one of torch's own."""
    if isinstance(loader.dataset, IterableDataset) or loader.sampler is None:
        return False
    return type(loader.sampler) in (RandomSampler, SequentialSampler)


def _split(loader: DataLoader[Any], ranks: sessions.Ranks) -> DataLoader[Any]:
    shuffle = isinstance(loader.sampler, RandomSampler)
    sampler: DistributedSampler[Any] = DistributedSampler(
        loader.dataset, num_replicas=ranks.world_size, rank=ranks.world_rank, shuffle=shuffle
    )
    options = {
        "batch_size": loader.batch_size,
        "num_workers": loader.num_workers,
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "drop_last": loader.drop_last,
        "timeout": loader.timeout,
        "worker_init_fn": loader.worker_init_fn,
        "generator": loader.generator,
        "multiprocessing_context": loader.multiprocessing_context,
        "prefetch_factor": loader.prefetch_factor,
        "persistent_workers": loader.persistent_workers,
    }
    return DataLoader(loader.dataset, sampler=sampler, **options)


class _OnDevice:
    """A data loader whose batches are on the worker's device."""

    def __init__(self, loader: DataLoader[Any], device: torch.device, *, ahead: bool) -> None:
        self._loader = loader
        self.device = device
        self._stream = torch.cuda.Stream(device) if ahead else None  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_loader"], name)

    def __iter__(self) -> Iterator[Any]:
        if self._stream is None:
            for batch in self._loader:
                yield _move(batch, self.device, blocking=True)
            return
        batches = iter(self._loader)
        waiting = self._fetch(batches)
        while waiting is not None:
            # Copy the next batch while the caller processes this one.
            current = torch.cuda.current_stream(self.device)
            current.wait_stream(self._stream)
            batch = waiting[0]
            _record_stream(batch, current)
            waiting = self._fetch(batches)
            yield batch

    def _fetch(self, batches: Iterator[Any]) -> tuple[Any] | None:
        try:
            batch = next(batches)
        except StopIteration:
            return None
        with torch.cuda.stream(self._stream):
            return (_move(batch, self.device, blocking=False),)


def _move(value: Any, device: torch.device, *, blocking: bool) -> Any:
    """Return a batch, which may be nested, on a device."""
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=not blocking)
    if isinstance(value, dict):
        return type(value)({key: _move(each, device, blocking=blocking) for key, each in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_move(each, device, blocking=blocking) for each in value))
    if isinstance(value, list | tuple):
        return type(value)(_move(each, device, blocking=blocking) for each in value)
    return value.to(device) if hasattr(value, "to") else value


def _record_stream(value: Any, stream: Any) -> None:
    """Tell the allocator that tensors created on one stream are used on another."""
    if isinstance(value, torch.Tensor):
        value.record_stream(stream)
    elif isinstance(value, dict):
        for each in value.values():
            _record_stream(each, stream)
    elif isinstance(value, list | tuple):
        for each in value:
            _record_stream(each, stream)
