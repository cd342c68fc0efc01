"""Training with XGBoost: workers grow one model."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

xgboost = pytest.importorskip("xgboost")

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from sklearn.datasets import load_breast_cancer  # noqa: E402

import skate  # noqa: E402
from skate import train  # noqa: E402
from skate.data.preprocessors import StandardScaler  # noqa: E402
from skate.train import CheckpointConfig, Result, RunConfig, ScalingConfig  # noqa: E402
from skate.train._frameworks import threads  # noqa: E402
from skate.train.xgboost import (  # noqa: E402
    RayTrainReportCallback,
    XGBoostCheckpoint,
    XGBoostConfig,
    XGBoostTrainer,
)

pytestmark = [pytest.mark.frameworks, pytest.mark.usefixtures("engine", "polars_is_running")]

PARAMS = {"objective": "binary:logistic", "eval_metric": ["logloss", "error"], "max_depth": 3}
ROUNDS = 8


def table() -> pd.DataFrame:
    """Return a table with an even number of rows, so that two workers get them all."""
    numbers, label = load_breast_cancer(return_X_y=True)
    found = pd.DataFrame(numbers, columns=[f"x{index}" for index in range(numbers.shape[1])])
    return found.assign(target=label).iloc[:-1]


def matrix(frame: pd.DataFrame) -> Any:
    return xgboost.DMatrix(frame.drop(columns="target"), label=frame["target"])


def loss_of(booster: Any) -> float:
    return float(booster.eval(matrix(table())).split("logloss:")[1].split()[0])


@pytest.fixture
def fit(run_config: Callable[..., RunConfig]) -> Callable[..., Result]:
    def go(function: Any = None, *, run: RunConfig | None = None, **options: Any) -> Result:
        return XGBoostTrainer(
            function,
            scaling_config=ScalingConfig(num_workers=2),
            run_config=run or run_config(),
            datasets=options.pop("datasets", None) or {"train": skate.data.from_pandas(table())},
            **options,
        ).fit()

    return go


def learn(config: dict[str, Any]) -> tuple[int, int, int]:
    """Train on this worker's rows; return how many those are, and XGBoost's own idea of its place."""
    frame = train.get_dataset_shard("train").materialize().to_pandas()
    rows = matrix(frame)
    callback = RayTrainReportCallback(**config)
    xgboost.train(PARAMS, rows, ROUNDS, evals=[(rows, "train")], verbose_eval=False, callbacks=[callback])
    return len(frame), xgboost.collective.get_rank(), xgboost.collective.get_world_size()


def test_two_workers_grow_the_model_that_one_would(fit: Callable[..., Result]) -> None:
    result = fit(learn, train_loop_config={})
    assert result.return_value == (len(table()) // 2, 0, 2)

    booster = RayTrainReportCallback.get_model(result.checkpoint)
    alone = xgboost.train(PARAMS, matrix(table()), ROUNDS)
    assert booster.num_boosted_rounds() == ROUNDS
    assert loss_of(booster) == pytest.approx(loss_of(alone), rel=0.1)
    # The metric is of all rows, and so the same on both workers.
    reports = result.rank_metrics()
    assert reports[reports["report"] == ROUNDS - 1]["train-logloss"].nunique() == 1
    assert result.metrics["train-logloss"] == pytest.approx(loss_of(booster), rel=1e-4)


def test_what_is_reported_can_be_chosen_and_models_are_kept_every_so_many_rounds(
    fit: Callable[..., Result],
) -> None:
    config = {"metrics": {"loss": "train-logloss"}, "frequency": 3, "filename": "own.json"}
    result = fit(learn, train_loop_config=config)
    assert list(result.metrics) == ["loss"]
    kept = [
        RayTrainReportCallback.get_model(checkpoint, filename="own.json").num_boosted_rounds()
        for checkpoint, _ in result.best_checkpoints
    ]
    assert kept == [3, 6, ROUNDS]


def test_a_run_without_a_function_goes_on_where_another_ended(fit: Callable[..., Result]) -> None:
    first = fit(label_column="target", params=PARAMS, num_boost_round=3)
    assert XGBoostTrainer.get_model(first.checkpoint).num_boosted_rounds() == 3
    second = fit(
        label_column="target",
        params=PARAMS,
        num_boost_round=5,
        resume_from_checkpoint=first.checkpoint,
        run=RunConfig(name="second", storage_path=str(first.path)),
        datasets={
            "train": skate.data.from_pandas(table()),
            "valid": skate.data.from_pandas(table().iloc[:100]),
        },
    )
    assert XGBoostTrainer.get_model(second.checkpoint).num_boosted_rounds() == 5
    assert set(second.metrics) == {"train-logloss", "train-error", "valid-logloss", "valid-error"}


def test_a_run_without_a_function_keeps_models_as_often_as_it_is_told(
    fit: Callable[..., Result], run_config: Callable[..., RunConfig]
) -> None:
    keep = CheckpointConfig(checkpoint_frequency=2, checkpoint_at_end=False)
    result = fit(label_column="target", params=PARAMS, num_boost_round=5, run=run_config(keep=keep))
    assert len(result.best_checkpoints) == 2


def test_a_worker_that_fails_does_not_wait_for_the_others(fit: Callable[..., Result]) -> None:
    def fails() -> None:
        if train.get_context().get_world_rank() == 1:
            raise ValueError("bad rows")
        learn({})  # waits for rank 1

    with pytest.raises(train.WorkerGroupError, match="bad rows") as caught:
        fit(fails)
    assert isinstance(caught.value.worker_failures[1], ValueError)


@pytest.mark.parametrize(("variable", "expected"), [("", 1), ("3", 3)], ids=["by CPUs", "as it is told"])
def test_a_worker_computes_with_as_many_threads_as_it_has_cpus_or_is_told(
    fit: Callable[..., Result], run_config: Callable[..., RunConfig], variable: str, expected: int
) -> None:
    def limits() -> list[int]:
        return [ctypes.CDLL(path).omp_get_max_threads() for path in sorted(threads._loaded_runtimes())]

    environment = {"env_vars": {"OMP_NUM_THREADS": variable}}
    found = fit(limits, run=run_config(worker_runtime_env=environment)).return_value
    assert found
    assert set(found) == {expected}


def test_without_workers_a_function_trains_in_this_process(run_config: Callable[..., RunConfig]) -> None:
    result = XGBoostTrainer(
        learn,
        train_loop_config={},
        scaling_config=ScalingConfig(num_workers=0),
        run_config=run_config(),
        datasets={"train": skate.data.from_pandas(table())},
    ).fit()
    assert result.return_value == (len(table()), 0, 1)


def test_a_metric_that_was_not_computed_is_named_with_those_that_were(fit: Callable[..., Result]) -> None:
    with pytest.raises(
        train.WorkerGroupError, match="cannot report metric 'auc': the computed metrics are 'train-logloss'"
    ):
        fit(learn, train_loop_config={"metrics": "auc"})


def test_a_label_that_is_no_column_is_named_with_those_that_are(fit: Callable[..., Result]) -> None:
    with pytest.raises(
        train.WorkerGroupError, match="no column 'price', which is the label_column: it has 'x0'"
    ):
        fit(label_column="price", params=PARAMS)


def test_what_a_trainer_needs_is_checked_when_it_is_made() -> None:
    rows = skate.data.range(3)
    with pytest.raises(ValueError, match="a dataset named 'train' in `datasets`, got 'valid'"):
        XGBoostTrainer(label_column="target", params=PARAMS, datasets={"valid": rows})
    with pytest.raises(ValueError, match="or a label_column"):
        XGBoostTrainer(datasets={"train": rows})
    with pytest.raises(ValueError, match="a training function and label_column"):
        XGBoostTrainer(learn, label_column="target", datasets={"train": rows})
    with pytest.raises(NotImplementedError, match="federated"):
        XGBoostConfig(xgboost_communicator="federated")
    with pytest.raises(ValueError, match="`frequency` must be a number of rounds, or 0 for never, got -1"):
        RayTrainReportCallback(frequency=-1)


def test_a_checkpoint_holds_a_model_and_its_preprocessor(tmp_path: Any) -> None:
    booster = xgboost.train(PARAMS, matrix(table()), 2)
    scaler = StandardScaler(["x0"])
    checkpoint = XGBoostCheckpoint.from_model(booster, preprocessor=scaler, path=str(tmp_path / "kept"))
    again = XGBoostCheckpoint(checkpoint.path)
    assert np.array_equal(again.get_model().predict(matrix(table())), booster.predict(matrix(table())))
    assert repr(again.get_preprocessor()) == repr(scaler)
    assert XGBoostCheckpoint.from_model(booster, path=str(tmp_path / "bare")).get_preprocessor() is None


def test_the_example_runs(run_example: Callable[..., str]) -> None:
    printed = run_example("xgboost_trainer.py")
    assert "20 rounds, 2 checkpoints" in printed
    assert float(printed.rpartition(": ")[2].rstrip("%\n")) < 10
