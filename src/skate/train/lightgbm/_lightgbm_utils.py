"""A report callback for LightGBM, and the conversion of its input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from skate.air import _optional
from skate.train._frameworks.boosting import Metrics, Postprocess, Reports
from skate.train._storage.checkpoint import Checkpoint

lightgbm = _optional.load("lightgbm", "skate.train.lightgbm")

__all__ = ["RayTrainReportCallback", "normalize_pandas_for_lightgbm"]


class RayTrainReportCallback:
    """A callback for `lightgbm.train` that reports each round to the trainer.

    If `lightgbm.early_stopping` ends the training, the last round is not recognized: set a frequency too.

    Args:
        metrics: The names of the metrics to report, such as `"valid-binary_logloss"`, or a dict of new names for them;
            all metrics if not given.
        filename: The model's file in a checkpoint.
        frequency: The number of rounds between two checkpoints; 0 for none.
        checkpoint_at_end: Whether to report the model of the last round.
        results_postprocessing_fn: Computes the reported metrics from all metrics of a round.
    """

    CHECKPOINT_NAME = "model.txt"

    order = 20  # before early stopping, which has 30: the round at which it stops is reported

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
        """Return the booster in a checkpoint.

        Args:
            checkpoint: The checkpoint of a result.
            filename: The model's file in it.
        """
        with checkpoint.as_directory() as folder:
            return lightgbm.Booster(model_file=str(Path(folder, filename)))

    def __call__(self, env: Any) -> None:
        """Report a round; LightGBM calls it."""
        is_last = env.iteration == env.end_iteration - 1
        due = self._reports.is_due(env.iteration - env.begin_iteration + 1)
        saves = due or (is_last and self._reports.checkpoint_at_end)
        self._reports.report(_flat(env.evaluation_result_list or ()), env.model.save_model if saves else None)


def _flat(results: Any) -> dict[str, Any]:
    """Return metrics by their reported names; cross-validation yields means and deviations."""
    found: dict[str, Any] = {}
    for dataset, metric, value, _, *deviation in results:
        name = f"{dataset}-{metric}"
        if deviation:
            found[f"{name}-mean"], found[f"{name}-stdv"] = value, deviation[0]
        else:
            found[name] = value
    return found


def normalize_pandas_for_lightgbm(df: Any) -> Any:
    """Return a copy of a frame with NumPy or categorical columns, since LightGBM does not accept Arrow columns.

    Args:
        df: A pandas frame, which is not modified.

    Returns:
        The copy, in which an integer column with missing values is a float column.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"x": pd.array([1, None], dtype="int64[pyarrow]")})
        >>> normalize_pandas_for_lightgbm(frame)["x"].dtype
        dtype('float64')
    """
    pd = _optional.load("pandas", "normalize_pandas_for_lightgbm")
    found = df.copy(deep=False)
    for name in df.columns:
        column = df[name]
        dtype = column.dtype
        if isinstance(dtype, pd.ArrowDtype):
            found[name] = pd.Series(pa.array(column).to_pandas().array, index=df.index)
        elif isinstance(dtype, pd.CategoricalDtype) and isinstance(dtype.categories.dtype, pd.ArrowDtype):
            found[name] = column.cat.rename_categories(dtype.categories.tolist())
    return found
