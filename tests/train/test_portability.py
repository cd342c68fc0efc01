"""Values that travel between the driver and its workers: functions, dataset settings, metrics, return values."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import pytest

import skate
import skate.data
from skate import train
from skate.data import DataContext
from skate.train import Result, RunConfig
from skate.train._reports.metrics import check_metrics, lookup

pytestmark = pytest.mark.ray_more

Fit = Callable[..., Result]


@pytest.mark.usefixtures("engine")
def test_a_function_that_cannot_be_serialised_is_refused_before_workers_start(fit: Fit) -> None:
    lock = threading.Lock()

    def function() -> None:
        print(lock)

    with pytest.raises(TypeError, match="was found to be non-serializable") as caught:
        fit(function)
    assert "_thread.lock" in str(caught.value)


@pytest.mark.usefixtures("engine")
def test_a_function_that_a_worker_cannot_load_fails_and_does_not_hang(
    fit: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    ghost = ModuleType("ghost_of_the_driver")
    exec("def function(): pass", ghost.__dict__)  # a function whose module only this process has
    monkeypatch.setitem(sys.modules, ghost.__name__, ghost)
    with pytest.raises(train.WorkerGroupError, match=ghost.__name__) as caught:
        fit(ghost.function)
    assert isinstance(caught.value.worker_failures[0], Exception)


@pytest.mark.usefixtures("engine")
def test_a_return_value_that_cannot_be_told_is_left_out(fit: Fit) -> None:
    def function() -> Any:
        train.report({"loss": 1})
        return threading.Lock()

    result = fit(function)
    assert result.metrics == {"loss": 1}
    assert result.return_value is None


@pytest.mark.usefixtures("engine")
def test_workers_have_the_settings_of_datasets_that_the_driver_has(
    fit: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = DataContext.get_current()
    context.set_config("where", "from the driver")

    def function() -> None:
        train.report({"where": DataContext.get_current().get_config("where")})

    try:
        result = fit(function, 1, datasets={"train": skate.data.range(2)})
    finally:
        context.remove_config("where")
    assert result.metrics == {"where": "from the driver"}


@pytest.mark.parametrize(
    "function", [lambda config, rounds=3: rounds, partial(lambda config, rounds: rounds, rounds=3)]
)
def test_a_function_may_have_further_arguments_with_defaults(fit: Fit, function: Callable[..., int]) -> None:
    assert fit(function, 0).return_value == 3


def test_a_function_must_not_need_more_than_its_settings(fit: Fit) -> None:
    with pytest.raises(ValueError, match=r"must take no argument, or one dictionary.*needs config, model"):
        fit(lambda config, model: None, 0)


def test_a_tensor_of_one_number_is_told_as_that_number_and_another_is_refused() -> None:
    torch = pytest.importorskip("torch")
    loss = torch.tensor(0.5, requires_grad=True)
    assert check_metrics({"loss": loss, "eval": {"loss": loss * 2}}) == {"loss": 0.5, "eval": {"loss": 1.0}}
    with pytest.raises(
        ValueError, match=r"`metrics\['eval/weight'\]` is a tensor of shape \(2, 1\).*checkpoint"
    ):
        check_metrics({"eval": {"weight": torch.zeros(2, 1)}})


def test_a_metric_inside_of_another_is_found_by_both_names() -> None:
    metrics = {"eval": {"loss": 0.5}, "eval/accuracy": 1.0}
    assert lookup(metrics, "eval/loss") == 0.5
    assert lookup(metrics, "eval/accuracy") == 1.0
    assert lookup(metrics, "eval/bleu") is None
    assert lookup(metrics, "loss") is None


def test_the_best_checkpoint_is_found_by_a_metric_inside_of_another(
    fit: Fit, run_config: Callable[..., RunConfig], tmp_path: Any
) -> None:
    (tmp_path / "state").mkdir()

    def function() -> None:
        for loss in (3.0, 1.0, 2.0):
            train.report({"eval": {"loss": loss}}, checkpoint=train.Checkpoint(tmp_path / "state"))

    keep = train.CheckpointConfig(
        num_to_keep=1, checkpoint_score_attribute="eval/loss", checkpoint_score_order="min"
    )
    result = fit(function, 0, run=run_config(keep=keep))
    kept = [metrics["eval"]["loss"] for _, metrics in result.best_checkpoints or ()]
    assert kept == [2.0, 1.0]  # the latest, to go on from, and the best
    assert result.get_best_checkpoint("eval/loss", "min") == (result.best_checkpoints or [])[1][0]
    with pytest.raises(RuntimeError, match="Invalid metric name 'loss'"):
        result.get_best_checkpoint("loss", "min")
