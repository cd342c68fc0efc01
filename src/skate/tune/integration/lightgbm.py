"""A callback for LightGBM that reports to Tune, in a trainable function."""

from __future__ import annotations

from skate.train._frameworks.boosting import Metrics, Postprocess
from skate.train.lightgbm import RayTrainReportCallback
from skate.tune.integration._boosting import TrialReports

__all__ = ["TuneReportCheckpointCallback"]


class TuneReportCheckpointCallback(RayTrainReportCallback):
    """A callback for `lightgbm.train` that reports each round to Tune.

    Args:
        metrics: The names of the metrics to report, or a dict of new names for them; all metrics if not given.
        filename: The model's file in a checkpoint.
        frequency: The number of rounds between two checkpoints; 0 for none.
        checkpoint_at_end: Whether to report the model of the last round.
        results_postprocessing_fn: Computes the reported metrics from all metrics of a round.
    """

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = RayTrainReportCallback.CHECKPOINT_NAME,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Postprocess | None = None,
    ) -> None:
        super().__init__()
        self._reports = TrialReports(
            metrics, filename, frequency, checkpoint_at_end, results_postprocessing_fn
        )
