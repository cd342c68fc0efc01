"""Back-test a forecaster with sktime, each fold of the cross-validation in a Ray task."""

import os

import numpy as np
import pandas as pd
from reporting import report
from sktime.forecasting.base import ForecastingHorizon
from sktime.forecasting.model_evaluation import evaluate
from sktime.forecasting.trend import PolynomialTrendForecaster
from sktime.performance_metrics.forecasting import MeanAbsoluteError, make_forecasting_scorer
from sktime.split import ExpandingWindowSplitter


def pid(y_true, y_pred):
    return float(os.getpid())


def back_test(**backend):
    """Return the table of errors, one row for each fold."""
    series = pd.Series(np.arange(60) ** 1.5, index=pd.period_range("2020-01", periods=60, freq="M"))
    return evaluate(
        PolynomialTrendForecaster(degree=2),
        ExpandingWindowSplitter(initial_window=24, step_length=6, fh=ForecastingHorizon([1, 2, 3])),
        series,
        scoring=[MeanAbsoluteError(), make_forecasting_scorer(pid, name="pid")],
        **backend,
    )


table = back_test(backend="ray", backend_params={"ray_remote_args": {"num_cpus": 2}})
serial = back_test()
report(
    result=table["test_MeanAbsoluteError"].tolist(),
    expected=serial["test_MeanAbsoluteError"].tolist(),
    pids={int(pid) for pid in table["test_pid"]},
)
