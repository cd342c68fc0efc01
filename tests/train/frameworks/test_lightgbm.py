"""Training with LightGBM: workers grow one model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

lightgbm = pytest.importorskip("lightgbm")

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import pyarrow as pa  # noqa: E402
from sklearn.datasets import load_breast_cancer  # noqa: E402
from sklearn.metrics import log_loss  # noqa: E402

import skate  # noqa: E402
from skate import train, tune  # noqa: E402
from skate.train import DataConfig, Result, RunConfig, ScalingConfig  # noqa: E402
from skate.train.collective import broadcast_from_rank_zero  # noqa: E402
from skate.train.lightgbm import (  # noqa: E402
    LightGBMCheckpoint,
    LightGBMTrainer,
    RayTrainReportCallback,
    get_network_params,
    normalize_pandas_for_lightgbm,
)

pytestmark = [pytest.mark.frameworks, pytest.mark.usefixtures("engine", "polars_is_running")]

PARAMS = {"objective": "binary", "metric": "binary_logloss", "verbose": -1}
ROUNDS = 8


def table() -> pd.DataFrame:
    """Return a table with an even number of rows, so that two workers get them all."""
    numbers, label = load_breast_cancer(return_X_y=True)
    found = pd.DataFrame(numbers, columns=[f"x{index}" for index in range(numbers.shape[1])])
    return found.assign(target=label).iloc[:-1]


def rows_of(frame: pd.DataFrame) -> Any:
    return lightgbm.Dataset(frame.drop(columns="target"), label=frame["target"])


def loss_of(booster: Any) -> float:
    return float(log_loss(table()["target"], booster.predict(table().drop(columns="target"))))


@pytest.fixture
def fit(run_config: Callable[..., RunConfig]) -> Callable[..., Result]:
    def go(function: Any = None, *, run: RunConfig | None = None, **options: Any) -> Result:
        return LightGBMTrainer(
            function,
            scaling_config=ScalingConfig(num_workers=2),
            run_config=run or run_config(),
            datasets=options.pop("datasets", None) or {"train": skate.data.from_pandas(table())},
            **options,
        ).fit()

    return go


def learn() -> tuple[int, str]:
    """Train on this worker's rows; return how many those are, and the model."""
    frame = normalize_pandas_for_lightgbm(train.get_dataset_shard("train").materialize().to_pandas())
    booster = lightgbm.train(
        {**PARAMS, "tree_learner": "data", "pre_partition": True, **get_network_params()},
        rows_of(frame),
        num_boost_round=ROUNDS,
        valid_sets=[rows_of(table())],
        valid_names=["all"],
        callbacks=[RayTrainReportCallback(frequency=5)],
    )
    return len(frame), booster.model_to_string().partition("parameters:")[0]


def test_two_workers_grow_the_model_that_one_would(fit: Callable[..., Result]) -> None:
    def function() -> bool:
        rows, model = learn()
        assert rows == len(table()) // 2
        assert get_network_params()["num_machines"] == 2
        first: str = broadcast_from_rank_zero(model)
        assert model == first
        return model == first

    result = fit(function)
    assert result.return_value
    booster = RayTrainReportCallback.get_model(result.checkpoint)
    alone = lightgbm.train(PARAMS, rows_of(table()), ROUNDS)
    assert booster.current_iteration() == ROUNDS
    assert loss_of(booster) == pytest.approx(loss_of(alone), rel=0.1)
    assert result.metrics["all-binary_logloss"] == pytest.approx(loss_of(booster), rel=1e-6)
    assert [
        RayTrainReportCallback.get_model(each).current_iteration() for each, _ in result.best_checkpoints
    ] == [
        5,
        ROUNDS,
    ]


def test_a_run_without_a_function_goes_on_where_another_ended_and_knows_categories(
    fit: Callable[..., Result],
) -> None:
    colours = pd.Series(["red", "blue"] * (len(table()) // 2)).astype("category")
    datasets = {
        "train": skate.data.from_pandas(table().assign(colour=colours)),
        "valid": skate.data.from_pandas(table().assign(colour=colours).iloc[:100]),
    }
    first = fit(label_column="target", params=PARAMS, num_boost_round=3, datasets=datasets)
    model = LightGBMTrainer.get_model(first.checkpoint)
    assert model.current_iteration() == 3
    assert model.pandas_categorical == [["blue", "red"]]
    second = fit(
        label_column="target",
        params=PARAMS,
        num_boost_round=5,
        resume_from_checkpoint=first.checkpoint,
        run=RunConfig(name="second", storage_path=str(first.path)),
        datasets=datasets,
        dataset_config=DataConfig(datasets_to_split=["train"]),
    )
    assert LightGBMTrainer.get_model(second.checkpoint).current_iteration() == 5
    assert set(second.metrics) == {"train-binary_logloss", "valid-binary_logloss"}


def test_a_run_without_a_function_is_restored_without_one(fit: Callable[..., Result]) -> None:
    first = fit(label_column="target", params=PARAMS, num_boost_round=2)
    second = LightGBMTrainer.restore(
        first.path,
        label_column="target",
        params=PARAMS,
        num_boost_round=3,
        scaling_config=ScalingConfig(num_workers=1),
        datasets={"train": skate.data.from_pandas(table())},
    ).fit()
    assert second.path == first.path
    assert LightGBMTrainer.get_model(second.checkpoint).current_iteration() == 3


def test_trials_change_the_parameters_of_a_trainer_without_a_function(
    run_config: Callable[..., RunConfig],
) -> None:
    trainer = LightGBMTrainer(
        label_column="target",
        params={**PARAMS, "max_depth": 1},
        num_boost_round=3,
        scaling_config=ScalingConfig(num_workers=1),
        datasets={"train": skate.data.from_pandas(table())},
        run_config=run_config(),
    )
    space = {"params": {"max_depth": tune.grid_search([2, 4])}, "num_boost_round": 2}
    results = tune.Tuner(trainer, param_space=space).fit()
    assert results.errors == []
    for result in results:
        model = LightGBMTrainer.get_model(result.checkpoint)
        assert model.current_iteration() == 2
        assert int(model.params["max_depth"]) == result.config["params"]["max_depth"]
        assert model.params["objective"] == "binary"  # of the trainer
    assert sorted(result.config["params"]["max_depth"] for result in results) == [2, 4]
    with pytest.raises(
        ValueError, match=r"may have label_column, params, .*not 'param'\. Did you mean 'params'"
    ):
        tune.Tuner(trainer, param_space={"param": {}})


def test_without_workers_a_function_trains_in_this_process(run_config: Callable[..., RunConfig]) -> None:
    result = LightGBMTrainer(
        learn,
        scaling_config=ScalingConfig(num_workers=0),
        run_config=run_config(),
        datasets={"train": skate.data.from_pandas(table())},
    ).fit()
    assert result.return_value[0] == len(table())


def test_what_a_trainer_needs_is_checked_when_it_is_made() -> None:
    rows = skate.data.range(3)
    with pytest.raises(ValueError, match="a dataset named 'train'"):
        LightGBMTrainer(label_column="target", params=PARAMS, datasets={"valid": rows})
    with pytest.raises(ValueError, match="or a label_column"):
        LightGBMTrainer(datasets={"train": rows})


def test_frames_of_arrow_become_frames_of_numpy() -> None:
    frame = pd.DataFrame(
        {
            "whole": pd.array([1, None], dtype="int64[pyarrow]"),
            "real": pd.array([0.5, 1.5], dtype="double[pyarrow]"),
            "kind": pd.Series(["a", "b"], dtype="string[pyarrow]").astype("category"),
            "plain": [1, 2],
        }
    )
    frame["kind"] = frame["kind"].cat.rename_categories(
        pd.Index(["a", "b"], dtype=pd.ArrowDtype(pa.string()))
    )
    found = normalize_pandas_for_lightgbm(frame)
    assert [found[name].dtype for name in ("whole", "real", "plain")] == ["float64", "float64", "int64"]
    assert list(found["kind"].cat.categories) == ["a", "b"]
    assert not isinstance(found["kind"].cat.categories.dtype, pd.ArrowDtype)
    assert isinstance(frame["whole"].dtype, pd.ArrowDtype)


def test_a_checkpoint_holds_a_model(tmp_path: Path) -> None:
    booster = lightgbm.train(PARAMS, rows_of(table()), 2)
    checkpoint = LightGBMCheckpoint.from_model(booster, path=str(tmp_path / "kept"))
    features = table().drop(columns="target")
    assert np.array_equal(checkpoint.get_model().predict(features), booster.predict(features))


def test_the_example_runs(run_example: Callable[..., str]) -> None:
    printed = run_example("lightgbm_trainer.py")
    assert "20 rounds, 2 checkpoints" in printed
    assert float(printed.rpartition(": ")[2].rstrip("%\n")) < 10
