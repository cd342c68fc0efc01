"""ZeRO-3 of DeepSpeed: a part of weights, gradients and optimizer states on each worker."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from skate.air import _optional
from skate.llm._finetune.config import FinetuneConfig
from skate.llm._finetune.schedule import Progress
from skate.llm._finetune.strategies import read_progress, write_progress, write_weights
from skate.llm._finetune.zero_settings import STAGE

_STATE, _TAG = "zero", "state"  # the folder of DeepSpeed's checkpoints, and the one that it has


class ZeroSharded:
    """A model whose weights DeepSpeed partitions. Every worker stores its part of the state.

    Args:
        module: The model with its loss.
        device: The device of this worker.
        config: The configuration.
        bf16: Whether to compute in bfloat16. DeepSpeed keeps float32 copies of trained weights.

    Raises:
        ValueError: If there is one worker only.
        ImportError: If deepspeed is not installed.
    """

    is_sharded = True

    def __init__(
        self, module: torch.nn.Module, device: torch.device, config: FinetuneConfig, *, bf16: bool
    ) -> None:
        if not dist.is_initialized():
            raise ValueError(
                "strategy: zero3 shards a model over several workers: set num_workers to 2 or more."
            )
        self.module: Any = module.to(device)
        self._settings = {
            # Without it, DeepSpeed would compile its own optimizer for states that are offloaded.
            "zero_force_ds_cpu_optimizer": False,
            **(config.deepspeed or {"zero_optimization": {"stage": STAGE}}),
            "train_micro_batch_size_per_gpu": config.micro_batch_size,
            "gradient_clipping": config.max_grad_norm,
            "bf16": {"enabled": bf16},
        }

    def attach(self, optimizer: torch.optim.Optimizer) -> Any:
        """Partition the weights and the states of an optimizer, and return the optimizer that updates the parts."""
        deepspeed = _import_deepspeed()
        self.module, attached, _, _ = deepspeed.initialize(
            model=self.module, optimizer=optimizer, config=self._settings, dist_init_required=False
        )
        return attached

    def accumulating(self, *, last: bool) -> AbstractContextManager[None]:
        """Return a context for a backward pass; DeepSpeed updates the weights after the last one of a step."""
        self.module.set_gradient_accumulation_boundary(last)
        return nullcontext()

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of a loss to this worker's part."""
        self.module.backward(loss, scale_wrt_gas=False)

    def step(self, optimizer: Any, max_norm: float) -> Any:
        """Update the weights; the engine was configured with the limit of the norm."""
        self.module.step()
        return self.module.get_global_grad_norm()

    def save(self, folder: Path, optimizer: Any, progress: Progress) -> None:
        """Write this worker's part of the state, and on rank 0 the whole trained weights; called on all ranks."""
        with _quiet():
            self.module.save_checkpoint(str(folder / _STATE), tag=_TAG, exclude_frozen_parameters=True)
        weights = self._trained_weights()
        if dist.get_rank() == 0:
            write_weights(folder, weights)
            write_progress(folder, progress)

    def _trained_weights(self) -> dict[str, torch.Tensor]:
        """Return the trained weights in float32; on other ranks than 0, which take part in gathering them, none."""
        whole_weight = _import_deepspeed().utils.safe_get_full_fp32_param
        found = {}
        for name, weight in self.module.module.named_parameters():
            if weight.requires_grad:
                whole = whole_weight(weight)
                if dist.get_rank() == 0:
                    found[name] = whole.detach().cpu().contiguous()
        return found

    def load(self, folder: Path, optimizer: Any) -> Progress:
        """Load what `save` has written, with the same number of workers.

        Raises:
            ValueError: If the checkpoint is of another strategy or number of workers.
        """
        parts = len(list((folder / _STATE / _TAG).glob("*_optim_states.pt")))
        workers = dist.get_world_size()
        if parts != workers:
            reason = (
                f"of {parts} workers, and there are {workers} now" if parts else "not one of strategy: zero3"
            )
            raise ValueError(
                f"the checkpoint is {reason}: a run with strategy: zero3 resumes with the workers that it began with."
            )
        with _quiet():
            # Weights that are not trained are not in the checkpoint, so it cannot be strict about names.
            found, _ = self.module.load_checkpoint(
                str(folder / _STATE), tag=_TAG, load_module_strict=False, load_lr_scheduler_states=False
            )
        assert found is not None
        return read_progress(folder)


def _import_deepspeed() -> Any:
    deepspeed: Any = _optional.load("deepspeed", "strategy: zero3")
    # It reports each of its settings and files, and uses functions that torch has renamed.
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed\.")
    # It would be compiled for more than a minute, and only inference uses it.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep DeepSpeed from printing the names of files."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
