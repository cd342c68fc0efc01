"""The trainer for LightGBM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import lightgbm

from skate.air.config import RunConfig, ScalingConfig
from skate.train._config.datasets import DataConfig
from skate.train._config.trainer_arguments import check_backend
from skate.train._config.validation_config import ValidationConfig
from skate.train._frameworks.boosting import BoostingTrainer, DefaultLoop
from skate.train._storage.checkpoint import Checkpoint
from skate.train._workers.train_context import get_checkpoint
from skate.train.lightgbm._lightgbm_utils import RayTrainReportCallback, normalize_pandas_for_lightgbm
from skate.train.lightgbm.config import LightGBMConfig, get_network_params

if TYPE_CHECKING:
    from skate.data import Dataset

__all__ = ["LightGBMTrainer"]


class _Loop(DefaultLoop):
    def __call__(self) -> None:
        model = None
        rounds = self.num_boost_round
        if (checkpoint := get_checkpoint()) is not None:
            model = RayTrainReportCallback.get_model(checkpoint)
            rounds -= model.current_iteration()
        sets = {name: lightgbm.Dataset(x, label=y) for name, (x, y) in self.frames().items()}
        options = dict(self.train_kwargs)
        callbacks = [
            *options.pop("callbacks", ()),
            RayTrainReportCallback(frequency=self.frequency, checkpoint_at_end=self.checkpoint_at_end),
        ]
        network = get_network_params()
        # The rows are already split between the workers.
        together = {"tree_learner": "data", "pre_partition": True} if network else {}
        lightgbm.train(
            {**together, **self.params, **network},
            sets["train"],
            valid_sets=list(sets.values()),
            valid_names=list(sets),
            num_boost_round=max(0, rounds),
            init_model=model,
            callbacks=callbacks,
            **options,
        )

    def convert(self, frame: Any) -> Any:
        return normalize_pandas_for_lightgbm(frame)


class LightGBMTrainer(BoostingTrainer):
    """Runs a training function on workers that are connected for LightGBM.

    With the parameters that `get_network_params()` returns, `lightgbm.train` trains one model on all workers.

    Args:
        train_loop_per_worker: The training function, without parameters or with one dict.
        train_loop_config: The argument of the training function.
        lightgbm_config: How the workers are connected.
        scaling_config: The number and the resources of the workers.
        run_config: Where the run is stored, and how it handles failures.
        datasets: Datasets, or functions that return them, by name.
        dataset_config: How the datasets are split.
        validation_config: How to validate checkpoints that are reported with `validation=True`.
        metadata: The metadata of each checkpoint.
        resume_from_checkpoint: The first result of `get_checkpoint()`.
        label_column: The column to predict, to train without a training function: on the dataset "train", with all
            datasets for evaluation.
        params: Parameters of LightGBM, without a training function.
        num_boost_round: The total number of rounds, without a training function; 10 by default.
        **train_kwargs: Further arguments of `lightgbm.train`, without a training function.

    Raises:
        ValueError: Neither a training function nor a label column with a dataset "train" is given, or both are.
    """

    _default_loop = _Loop
    _train = staticmethod(lightgbm.train)

    def __init__(
        self,
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any] | None = None,
        *,
        train_loop_config: dict[str, Any] | None = None,
        lightgbm_config: LightGBMConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Dataset | Callable[[], Dataset]] | None = None,
        dataset_config: DataConfig | None = None,
        validation_config: ValidationConfig | None = None,
        metadata: Mapping[str, Any] | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        label_column: str | None = None,
        params: dict[str, Any] | None = None,
        num_boost_round: int | None = None,
        **train_kwargs: Any,
    ) -> None:
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=check_backend("lightgbm_config", lightgbm_config, LightGBMConfig),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            validation_config=validation_config,
            metadata=metadata,
            resume_from_checkpoint=resume_from_checkpoint,
            label_column=label_column,
            params=params,
            num_boost_round=num_boost_round,
            train_kwargs=train_kwargs,
        )

    @classmethod
    def get_model(cls, checkpoint: Checkpoint) -> Any:
        """Return the booster in a checkpoint of a run without a training function."""
        return RayTrainReportCallback.get_model(checkpoint)
