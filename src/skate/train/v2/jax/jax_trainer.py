"""The trainer for JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from skate.air import _optional
from skate.air.config import RunConfig, ScalingConfig
from skate.train._config.datasets import DataConfig
from skate.train._config.trainer_arguments import check_backend, check_trainer
from skate.train._config.validation_config import ValidationConfig
from skate.train.data_parallel_trainer import DataParallelTrainer
from skate.train.v2.jax.config import JaxConfig

if TYPE_CHECKING:
    from skate.data import Dataset

__all__ = ["JaxTrainer"]


class JaxTrainer(DataParallelTrainer):
    """Runs a training function on workers that are processes of one JAX program.

    In the function, `jax.devices()` are the devices of all workers, and `jax.local_devices()` those of this one.

    Args:
        train_loop_per_worker: The training function, without parameters or with one dict.
        train_loop_config: The argument of the training function.
        jax_config: The devices of the workers; derived from `scaling_config` if not given.
        scaling_config: The number and the resources of the workers.
        dataset_config: How the datasets are split.
        run_config: Where the run is stored, and how it handles failures.
        datasets: Datasets, or functions that return them, by name.
        validation_config: How to validate checkpoints that are reported with `validation=True`.

    Raises:
        ImportError: JAX is not installed.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        jax_config: JaxConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        dataset_config: DataConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Dataset | Callable[[], Dataset]] | None = None,
        validation_config: ValidationConfig | None = None,
    ) -> None:
        _optional.require("jax", "JaxTrainer")
        check_trainer(scaling_config, run_config, dataset_config, None, validation_config)
        scaling_config = scaling_config or ScalingConfig()
        if jax_config is None:
            jax_config = JaxConfig(use_tpu=scaling_config.use_tpu, use_gpu=scaling_config.use_gpu)
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=check_backend("jax_config", jax_config, JaxConfig),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            validation_config=validation_config,
        )
