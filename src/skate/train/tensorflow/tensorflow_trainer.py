"""The trainer for TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from skate.air import _optional
from skate.air.config import RunConfig, ScalingConfig
from skate.train._config.datasets import DataConfig
from skate.train._config.trainer_arguments import check_backend
from skate.train._config.validation_config import ValidationConfig
from skate.train._storage.checkpoint import Checkpoint
from skate.train.data_parallel_trainer import DataParallelTrainer
from skate.train.tensorflow.config import TensorflowConfig

if TYPE_CHECKING:
    from skate.data import Dataset

__all__ = ["TensorflowTrainer"]


class TensorflowTrainer(DataParallelTrainer):
    """Runs a training function on workers that form a TensorFlow cluster.

    In the function, `tf.distribute.MultiWorkerMirroredStrategy()` averages the gradients of all workers.

    Args:
        train_loop_per_worker: The training function, without parameters or with one dict.
        train_loop_config: The argument of the training function.
        tensorflow_config: How the workers are connected.
        scaling_config: The number and the resources of the workers.
        dataset_config: How the datasets are split.
        run_config: Where the run is stored, and how it handles failures.
        datasets: Datasets, or functions that return them, by name.
        validation_config: How to validate checkpoints that are reported with `validation=True`.
        metadata: The metadata of each checkpoint.
        resume_from_checkpoint: The first result of `get_checkpoint()`.

    Raises:
        ImportError: TensorFlow is not installed.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        tensorflow_config: TensorflowConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        dataset_config: DataConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Dataset | Callable[[], Dataset]] | None = None,
        validation_config: ValidationConfig | None = None,
        metadata: Mapping[str, Any] | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
    ) -> None:
        _optional.require("tensorflow", "TensorflowTrainer")
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=check_backend("tensorflow_config", tensorflow_config, TensorflowConfig),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            validation_config=validation_config,
            metadata=metadata,
            resume_from_checkpoint=resume_from_checkpoint,
        )
