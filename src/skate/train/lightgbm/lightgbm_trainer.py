"""Trains with LightGBM on several workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import lightgbm

from skate.train._config.arguments import checked_backend
from skate.train._config.datasets import DataConfig
from skate.train._config.shared import RunConfig, ScalingConfig
from skate.train._config.validation import ValidationConfig
from skate.train._frameworks.boosting import BoostingTrainer, DefaultLoop
from skate.train._storage.checkpoint import Checkpoint
from skate.train._workers.context import get_checkpoint
from skate.train.lightgbm._frames import normalize_pandas_for_lightgbm
from skate.train.lightgbm._report import RayTrainReportCallback
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
        # Each worker has its own rows already.
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

    def prepared(self, frame: Any) -> Any:
        return normalize_pandas_for_lightgbm(frame)


class LightGBMTrainer(BoostingTrainer):
    """Runs a training function on workers that know each other's ports.

    With the parameters that `get_network_params()` returns, `lightgbm.train` grows one model on all workers.

    Args:
        train_loop_per_worker: The function, which takes nothing, or one dict.
        train_loop_config: That dict.
        lightgbm_config: How the workers are connected.
        scaling_config: How many workers there are, and what each has.
        run_config: Where the run is kept, and how it deals with failures.
        datasets: Datasets, or functions that return them, by name.
        dataset_config: How they are shared.
        validation_config: What validates checkpoints that are reported with `validation=True`.
        metadata: What is noted on each checkpoint.
        resume_from_checkpoint: What `get_checkpoint()` returns at the beginning.
        label_column: The column to predict: trains without a function, on the dataset "train", and evaluates on all.
        params: Parameters of LightGBM, for that.
        num_boost_round: Rounds in all, for that; 10 if not given.
        **train_kwargs: Further arguments of `lightgbm.train`, for that.

    Raises:
        ValueError: There is neither a function nor a label and a dataset "train"; or there are both.
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
            backend_config=checked_backend("lightgbm_config", lightgbm_config, LightGBMConfig),
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
        """Return the booster that a checkpoint of a run without a training function holds."""
        return RayTrainReportCallback.get_model(checkpoint)
