"""How a model is distributed over workers, and how its state is stored."""

from __future__ import annotations

import dataclasses
import json
import math
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from skate.air import _optional
from skate.llm._finetune.schedule import Progress

WEIGHTS = "trained.safetensors"
SHARDS = "shards"
_OPTIMIZER = "optimizer.pt"
_PROGRESS = "progress.json"


class Strategy(Protocol):
    """The interface of a strategy of distribution, as the training loop uses it."""

    is_sharded: bool  # whether every worker stores a part of the state, instead of rank 0 all of it
    module: Any  # the module that the loop calls

    def attach(self, optimizer: torch.optim.Optimizer) -> Any:
        """Return the optimizer that updates the distributed weights."""
        ...

    def accumulating(self, *, last: bool) -> AbstractContextManager[None]:
        """Return a context for a backward pass, which exchanges gradients only with the last one of a step."""
        ...

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of a loss."""
        ...

    def step(self, optimizer: Any, max_norm: float) -> Any:
        """Update the weights with gradients of at most this norm (0: of any), and return the norm they had."""
        ...

    def save(self, folder: Path, optimizer: Any, progress: Progress) -> None:
        """Write the state."""
        ...

    def load(self, folder: Path, optimizer: Any) -> Progress:
        """Load what `save` has written."""
        ...


class _TorchOptimizer:
    """The steps of strategies whose gradients and optimizer are torch's own."""

    module: Any

    def attach(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Return the optimizer itself."""
        return optimizer

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of a loss."""
        loss.backward()  # type: ignore[no-untyped-call]

    def step(self, optimizer: torch.optim.Optimizer, max_norm: float) -> torch.Tensor:
        """Update the weights, and return the norm of the gradients without waiting for the device."""
        weights = [each for each in self.module.parameters() if each.grad is not None]
        norm: Any = torch.nn.utils.clip_grad_norm_(weights, max_norm or math.inf)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        found: torch.Tensor = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        return found


class Replicated(_TorchOptimizer):
    """A copy of the model on each worker, with averaged gradients (DDP). Rank 0 saves the state."""

    is_sharded = False

    def __init__(self, module: torch.nn.Module, device: torch.device) -> None:
        from skate.train.torch import prepare_model

        self.plain = module.to(device)
        self.module = prepare_model(self.plain, move_to_device=False)

    def accumulating(self, *, last: bool) -> AbstractContextManager[None]:
        """Return a context for a backward pass. Only the last pass of a step synchronizes gradients."""
        if last or not isinstance(self.module, torch.nn.parallel.DistributedDataParallel):
            return nullcontext()
        return self.module.no_sync()

    def save(self, folder: Path, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
        """Save the trained weights, the optimizer and the progress. Called on rank 0."""
        write_weights(folder, trained_weights(self.plain))
        torch.save(optimizer.state_dict(), folder / _OPTIMIZER)
        write_progress(folder, progress)

    def load(self, folder: Path, optimizer: torch.optim.Optimizer) -> Progress:
        """Load the state that `save` has written."""
        load_weights(self.plain, _safetensors().load_file(folder / WEIGHTS))
        optimizer.load_state_dict(torch.load(folder / _OPTIMIZER, map_location="cpu", weights_only=True))
        return read_progress(folder)


class Sharded(_TorchOptimizer):
    """A shard of every weight on each worker (FSDP2). Every worker saves its shard of the state."""

    is_sharded = True

    def __init__(self, module: torch.nn.Module, device: torch.device, *, compute: torch.dtype | None) -> None:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        if not dist.is_initialized():
            raise ValueError(
                "strategy: fsdp2 needs several workers to shard the model over: set num_workers to 2 or more."
            )
        self.plain = module.to(device)
        policy = MixedPrecisionPolicy(param_dtype=compute)
        for layer in _layers(self.plain):  # a worker gathers one layer at a time
            fully_shard(layer, mp_policy=policy)
        self.module: Any = fully_shard(self.plain, mp_policy=policy)

    def accumulating(self, *, last: bool) -> AbstractContextManager[None]:
        """Return a context for a backward pass. Only the last pass of a step synchronizes gradients."""
        self.module.set_requires_gradient_sync(last)
        return nullcontext()

    def save(self, folder: Path, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
        """Save this worker's shard of the state. Called on all ranks."""
        from torch.distributed.checkpoint.state_dict_saver import save

        weights, states = self._state(optimizer)
        with _quiet():
            save({"model": weights, "optimizer": states}, checkpoint_id=folder / SHARDS)
        if dist.get_rank() == 0:
            write_progress(folder, progress)

    def load(self, folder: Path, optimizer: torch.optim.Optimizer) -> Progress:
        """Load the state that `save` has written with any number of workers."""
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_state_dict
        from torch.distributed.checkpoint.state_dict_loader import load

        weights, states = self._state(optimizer)
        with _quiet():
            load({"model": weights, "optimizer": states}, checkpoint_id=folder / SHARDS)
        set_state_dict(
            self.module,
            optimizer,
            model_state_dict=weights,
            optim_state_dict=states,
            options=StateDictOptions(strict=False),
        )
        return read_progress(folder)

    def _state(self, optimizer: torch.optim.Optimizer) -> tuple[Any, Any]:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

        return get_state_dict(self.module, optimizer, options=StateDictOptions(ignore_frozen_params=True))


def trained_weights(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the weights that are trained, by name, on the CPU."""
    return {
        name: weight.detach().cpu().contiguous()
        for name, weight in module.named_parameters()
        if weight.requires_grad
    }


@torch.no_grad()
def load_weights(module: torch.nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Copy weights into the trained parameters of a module.

    Raises:
        ValueError: If names or shapes differ, because the checkpoint is from another model or adapter.
    """
    trained = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
    # Weights that a model shares may be stored under two names.
    others = (trained.keys() - weights.keys()) | (weights.keys() - module.state_dict().keys())
    if others:
        other = min(others)
        raise ValueError(
            f"the checkpoint is from another model or adapter: only one of them has {other!r}. Set another output_dir."
        )
    for name, weight in trained.items():
        if weight.shape != weights[name].shape:
            raise ValueError(
                f"the checkpoint is from another model or adapter: {name!r} has the shape "
                f"{tuple(weights[name].shape)} in the checkpoint and {tuple(weight.shape)} in the model. Set another "
                "output_dir."
            )
        weight.copy_(weights[name])


def write_weights(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    """Write the trained weights into a checkpoint."""
    _safetensors().save_file(weights, folder / WEIGHTS)


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the trained weights of a checkpoint, by name."""
    if (folder / WEIGHTS).is_file():
        found: dict[str, torch.Tensor] = _safetensors().load_file(folder / WEIGHTS)
        return found
    import tempfile

    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    with tempfile.TemporaryDirectory() as temporary, _quiet():
        file = Path(temporary, "state.pt")
        dcp_to_torch_save(folder / SHARDS, file)
        weights: dict[str, torch.Tensor] = torch.load(file, weights_only=True)["model"]
    return weights


def _safetensors() -> Any:
    return _optional.load("safetensors.torch", "skate.llm.finetune", "safetensors")


def _layers(module: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the layers of a model, which are the entries of its longest list of modules."""
    lists = [list(each) for each in module.modules() if isinstance(each, torch.nn.ModuleList)]
    return max(lists, key=lambda each: len(each), default=[])


def write_progress(folder: Path, progress: Progress) -> None:
    """Write the progress of a run into a checkpoint."""
    (folder / _PROGRESS).write_text(json.dumps(dataclasses.asdict(progress)), encoding="utf-8")


def read_progress(folder: Path) -> Progress:
    """Return the progress of the run that wrote a checkpoint."""
    return Progress(**json.loads((folder / _PROGRESS).read_text(encoding="utf-8")))


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the warning of torch.distributed.checkpoint about loading or saving in a single process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
