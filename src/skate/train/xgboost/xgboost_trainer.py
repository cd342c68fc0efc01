"""Trains with XGBoost on several workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import xgboost

from skate.train._config.arguments import checked_backend
from skate.train._config.datasets import DataConfig
from skate.train._config.shared import RunConfig, ScalingConfig
from skate.train._config.validation import ValidationConfig
from skate.train._frameworks.boosting import BoostingTrainer, DefaultLoop
from skate.train._storage.checkpoint import Checkpoint
from skate.train._workers.context import get_checkpoint
from skate.train.xgboost._report import RayTrainReportCallback
from skate.train.xgboost.config import XGBoostConfig

if TYPE_CHECKING:
    from skate.data import Dataset

__all__ = ["XGBoostTrainer"]


class _Loop(DefaultLoop):
    def __call__(self) -> None:
        model = None
        rounds = self.num_boost_round
        if (checkpoint := get_checkpoint()) is not None:
            model = RayTrainReportCallback.get_model(checkpoint)
            rounds -= model.num_boosted_rounds()
        matrices = {name: xgboost.DMatrix(x, label=y) for name, (x, y) in self.frames().items()}
        options = {"verbose_eval": False, **self.train_kwargs}
        callbacks = [
            *options.pop("callbacks", ()),
            RayTrainReportCallback(frequency=self.frequency, checkpoint_at_end=self.checkpoint_at_end),
        ]
        xgboost.train(
            self.params,
            matrices["train"],
            evals=[(matrix, name) for name, matrix in matrices.items()],
            num_boost_round=max(0, rounds),
            xgb_model=model,
            callbacks=callbacks,
            **options,
        )


class XGBoostTrainer(BoostingTrainer):
    """Runs a training function on workers that are a communicator of XGBoost's: `xgboost.train` grows one model.

    Args:
        train_loop_per_worker: The function, which takes nothing, or one dict.
        train_loop_config: That dict.
        xgboost_config: How the workers are connected.
        scaling_config: How many workers there are, and what each has.
        run_config: Where the run is kept, and how it deals with failures.
        datasets: Datasets, or functions that return them, by name.
        dataset_config: How they are shared.
        validation_config: What validates checkpoints that are reported with `validation=True`.
        metadata: What is noted on each checkpoint.
        resume_from_checkpoint: What `get_checkpoint()` returns at the beginning.
        label_column: The column to predict: trains without a function, on the dataset "train", and evaluates on all.
        params: Parameters of XGBoost, for that.
        num_boost_round: Rounds in all, for that; 10 if not given.
        **train_kwargs: Further arguments of `xgboost.train`, for that.

    Raises:
        ValueError: There is neither a function nor a label and a dataset "train"; or there are both.
    """

    _default_loop = _Loop
    _train = staticmethod(xgboost.train)

    def __init__(
        self,
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any] | None = None,
        *,
        train_loop_config: dict[str, Any] | None = None,
        xgboost_config: XGBoostConfig | None = None,
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
            backend_config=checked_backend("xgboost_config", xgboost_config, XGBoostConfig),
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
        """Return the booster that a checkpoint of a run without a training function holds.

        Raises:
            DeprecationWarning: There is no checkpoint: in a training function, `RayTrainReportCallback` keeps models.
        """
        if checkpoint is None:
            raise DeprecationWarning(
                "XGBoostTrainer.get_model is for runs without a training function, and there is no checkpoint: in a "
                "training function use RayTrainReportCallback, which keeps models, and its get_model"
            )
        return RayTrainReportCallback.get_model(checkpoint)
