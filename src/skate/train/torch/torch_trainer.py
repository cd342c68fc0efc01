"""Trains with torch on several workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from skate.train._config.arguments import checked_backend
from skate.train._config.datasets import DataConfig
from skate.train._config.shared import RunConfig, ScalingConfig
from skate.train._config.validation import ValidationConfig
from skate.train._storage.checkpoint import Checkpoint
from skate.train.data_parallel_trainer import DataParallelTrainer
from skate.train.torch.config import TorchConfig

if TYPE_CHECKING:
    from skate.data import Dataset

__all__ = ["TorchTrainer"]


class TorchTrainer(DataParallelTrainer):
    """Runs a training function on workers that are a process group of torch.distributed.

    Args:
        train_loop_per_worker: The function, which takes nothing, or one dict.
        train_loop_config: That dict.
        torch_config: How the workers become a process group.
        scaling_config: How many workers there are, and what each has.
        run_config: Where the run is kept, and how it deals with failures.
        datasets: Datasets, or functions that return them, by name.
        dataset_config: How they are shared.
        metadata: What is noted on each checkpoint.
        resume_from_checkpoint: What `get_checkpoint()` returns at the beginning.
        validation_config: What validates checkpoints that are reported with `validation=True`.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        torch_config: TorchConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Dataset | Callable[[], Dataset]] | None = None,
        dataset_config: DataConfig | None = None,
        metadata: Mapping[str, Any] | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        validation_config: ValidationConfig | None = None,
    ) -> None:
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=checked_backend("torch_config", torch_config, TorchConfig),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            metadata=metadata,
            resume_from_checkpoint=resume_from_checkpoint,
            validation_config=validation_config,
        )
