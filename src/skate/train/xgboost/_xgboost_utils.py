"""A report callback for XGBoost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skate.air import _optional
from skate.train._frameworks.boosting import Metrics, Postprocess, Reports
from skate.train._storage.checkpoint import Checkpoint

xgboost = _optional.load("xgboost", "skate.train.xgboost")
_Base: Any = xgboost.callback.TrainingCallback

__all__ = ["RayTrainReportCallback"]


class RayTrainReportCallback(_Base):  # type: ignore[misc]  # Any: it is optional
    """A callback for `xgboost.train` that reports each round to the trainer.

    Args:
        metrics: The names of the metrics to report, such as `"train-logloss"`, or a dict of new names for them; all
            metrics if not given.
        filename: The model's file in a checkpoint.
        frequency: The number of rounds between two checkpoints; 0 for none.
        checkpoint_at_end: Whether to report the model of the last round.
        results_postprocessing_fn: Computes the reported metrics from all metrics, each of which is a list with a value
            per round.
    """

    CHECKPOINT_NAME = "model.ubj"

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = CHECKPOINT_NAME,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Postprocess | None = None,
    ) -> None:
        self._reports = Reports(metrics, filename, frequency, checkpoint_at_end, results_postprocessing_fn)
        self._rounds = 0
        self._saved = 0  # the round of the latest checkpoint, counted from one
        self._log: dict[str, Any] = {}

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Any:
        """Return the booster in a checkpoint.

        Args:
            checkpoint: The checkpoint of a result.
            filename: The model's file in it.
        """
        with checkpoint.as_directory() as folder:
            booster = xgboost.Booster()
            booster.load_model(str(Path(folder, filename)))
            return booster

    def after_iteration(self, model: Any, epoch: int, evals_log: dict[str, dict[str, Any]]) -> bool:
        """Report a round; XGBoost calls it."""
        self._rounds += 1
        self._log = _flat(evals_log)
        due = self._reports.is_due(self._rounds)
        if due:
            self._saved = self._rounds
        self._reports.report(self._log, model.save_model if due else None)
        return False

    def after_training(self, model: Any) -> Any:
        """Report the last model; XGBoost calls it."""
        if self._reports.checkpoint_at_end and self._rounds > self._saved:
            self._saved = self._rounds
            self._reports.report(self._log, model.save_model)
        return model


def _flat(evals_log: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return metrics by their reported names; cross-validation yields means and deviations."""
    found: dict[str, Any] = {}
    for dataset, metrics in evals_log.items():
        for name, values in metrics.items():
            if values and isinstance(values[-1], tuple):
                found[f"{dataset}-{name}-mean"] = [mean for mean, _ in values]
                found[f"{dataset}-{name}-std"] = [deviation for _, deviation in values]
            else:
                found[f"{dataset}-{name}"] = list(values)
    return found
