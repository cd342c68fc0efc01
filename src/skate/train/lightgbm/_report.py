"""Reports the rounds of LightGBM, and keeps its models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skate.air import _optional
from skate.train._frameworks.boosting import Metrics, Postprocess, Reports
from skate.train._storage.checkpoint import Checkpoint

lightgbm = _optional.load("lightgbm", "skate.train.lightgbm")

__all__ = ["RayTrainReportCallback"]


class RayTrainReportCallback:
    """A callback for `lightgbm.train` that reports each round to the trainer.

    Training that `lightgbm.early_stopping` ends has no last round to keep: give a frequency too.

    Args:
        metrics: Names of the metrics to report, as `"valid-binary_logloss"`, or a dict of new names for them; all if
            not given.
        filename: The model's file in a checkpoint.
        frequency: Keep the model every so many rounds; 0 for never.
        checkpoint_at_end: Keep the model of the last round.
        results_postprocessing_fn: Makes what is reported out of all metrics of a round.
    """

    CHECKPOINT_NAME = "model.txt"

    order = 20  # LightGBM calls early stopping at 30: what it stops at is reported before

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = CHECKPOINT_NAME,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Postprocess | None = None,
    ) -> None:
        self._reports = Reports(metrics, filename, frequency, checkpoint_at_end, results_postprocessing_fn)

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Any:
        """Return the booster that a checkpoint holds.

        Args:
            checkpoint: The checkpoint, as a trainer's result has it.
            filename: The model's file in it.
        """
        with checkpoint.as_directory() as folder:
            return lightgbm.Booster(model_file=str(Path(folder, filename)))

    def __call__(self, env: Any) -> None:
        """Report a round; LightGBM calls it."""
        is_last = env.iteration == env.end_iteration - 1
        due = self._reports.is_due(env.iteration - env.begin_iteration + 1)
        keeps = due or (is_last and self._reports.checkpoint_at_end)
        self._reports.report(_flat(env.evaluation_result_list or ()), env.model.save_model if keeps else None)


def _flat(results: Any) -> dict[str, Any]:
    """Return metrics by the names under which they are reported; cross-validation gives means and deviations."""
    found: dict[str, Any] = {}
    for dataset, metric, value, _, *deviation in results:
        name = f"{dataset}-{metric}"
        if deviation:
            found[f"{name}-mean"], found[f"{name}-stdv"] = value, deviation[0]
        else:
            found[name] = value
    return found
