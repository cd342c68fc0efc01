"""What a training function does with its model and its data, so that several workers train as one."""

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
    """A class that Ray has taken out: use `torch.profiler` in the training function.

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
    """Bring a model to this worker's device, and make its gradients common to all workers.

    Args:
        model: The model.
        move_to_device: Whether to move it, or where to.
        parallel_strategy: "ddp" keeps a whole copy on each worker; "fsdp" shards it with
            `torch.distributed.fsdp.fully_shard`; None leaves it as it is. With one worker it stays as it is.
        parallel_strategy_kwargs: Arguments for `DistributedDataParallel` or `fully_shard`.

    Raises:
        ValueError: The strategy is not known.
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
    """Let each worker see its part of a data loader's rows, on its device.

    Args:
        data_loader: The loader, the same on each worker.
        add_dist_sampler: Give each worker its part. Call `loader.sampler.set_epoch(epoch)` before each pass, so that
            the order differs. A loader that has a sampler of its own kind keeps it.
        move_to_device: Bring batches to the worker's device.
        auto_transfer: Copy the next batch to the GPU while the model works on this one.
    """
    session = sessions.current("prepare_data_loader()")
    arguments.instance("data_loader", data_loader, DataLoader, "a torch.utils.data.DataLoader")
    for name, value in (
        ("add_dist_sampler", add_dist_sampler),
        ("move_to_device", move_to_device),
        ("auto_transfer", auto_transfer),
    ):
        arguments.flag(name, value)
    if add_dist_sampler and session.place.world_size > 1 and _can_be_split(data_loader):
        data_loader = _split(data_loader, session.place)
    if not move_to_device:
        return data_loader
    device = get_device()
    ahead = auto_transfer and device.type == "cuda"
    return _OnDevice(data_loader, device, ahead=ahead)  # type: ignore[return-value]


def prepare_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Return an optimizer that scales gradients, if `accelerate(amp=True)` was called and there is a GPU."""
    arguments.instance("optimizer", optimizer, torch.optim.Optimizer, "a torch.optim.Optimizer")
    if _precision() is None or get_device().type != "cuda":
        return optimizer
    return _ScaledOptimizer(optimizer, _scaler())


def accelerate(amp: bool = False) -> None:
    """Compute with less precision where that is safe.

    Args:
        amp: Let models that are prepared afterwards compute in automatic mixed precision.

    Raises:
        RuntimeError: It was called before, or this is not a training function.
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
    """Let a run give the same result each time: seeds, and algorithms without chance.

    Args:
        seed: For Python, NumPy and torch. Workers get the same.
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
    """Return what the training function that runs now has chosen: one process may run several, one after the other."""
    if _chosen is None or not sessions.is_active() or _chosen[0] is not sessions.current("accelerate()"):
        return None
    return _chosen[1]


def _scaler() -> Any:
    global _the_scaler
    if _the_scaler is None:
        _the_scaler = torch.amp.GradScaler("cuda")
    return _the_scaler


class _Autocast:
    """Hooks between which a model computes in mixed precision; its class and the names of its weights stay."""

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
    """Tell whether torch's own sampler may be put in place of the loader's: it must be one of torch's own kinds."""
    if isinstance(loader.dataset, IterableDataset) or loader.sampler is None:
        return False
    return type(loader.sampler) in (RandomSampler, SequentialSampler)


def _split(loader: DataLoader[Any], place: sessions.Place) -> DataLoader[Any]:
    shuffle = isinstance(loader.sampler, RandomSampler)
    sampler: DistributedSampler[Any] = DistributedSampler(
        loader.dataset, num_replicas=place.world_size, rank=place.world_rank, shuffle=shuffle
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
                yield _moved(batch, self.device, blocking=True)
            return
        batches = iter(self._loader)
        waiting = self._fetch(batches)
        while waiting is not None:
            # The next batch is copied while the caller works on this one.
            current = torch.cuda.current_stream(self.device)
            current.wait_stream(self._stream)
            batch = waiting[0]
            _keep_until_used(batch, current)
            waiting = self._fetch(batches)
            yield batch

    def _fetch(self, batches: Iterator[Any]) -> tuple[Any] | None:
        try:
            batch = next(batches)
        except StopIteration:
            return None
        with torch.cuda.stream(self._stream):
            return (_moved(batch, self.device, blocking=False),)


def _moved(value: Any, device: torch.device, *, blocking: bool) -> Any:
    """Return a batch, whatever holds its tensors, on a device."""
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=not blocking)
    if isinstance(value, dict):
        return type(value)({key: _moved(each, device, blocking=blocking) for key, each in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_moved(each, device, blocking=blocking) for each in value))
    if isinstance(value, list | tuple):
        return type(value)(_moved(each, device, blocking=blocking) for each in value)
    return value.to(device) if hasattr(value, "to") else value


def _keep_until_used(value: Any, stream: Any) -> None:
    """Tell the allocator that tensors made on one stream are used on another."""
    if isinstance(value, torch.Tensor):
        value.record_stream(stream)
    elif isinstance(value, dict):
        for each in value.values():
            _keep_until_used(each, stream)
    elif isinstance(value, list | tuple):
        for each in value:
            _keep_until_used(each, stream)
