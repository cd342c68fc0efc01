"""Stoppers, one result after the other."""

from __future__ import annotations

import datetime
import math
import pickle
import time
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skate.tune.stopper import (
    CombinedStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    NoopStopper,
    Stopper,
    TimeoutStopper,
    TrialPlateauStopper,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def answers(stopper: Stopper, values: list[float], trial: str = "a") -> list[bool]:
    return [stopper(trial, {"loss": value}) for value in values]


def test_a_subclass_that_defines_nothing_says_what_is_missing() -> None:
    class Empty(Stopper):
        pass

    with pytest.raises(NotImplementedError, match="Empty must define __call__"):
        Empty()("a", {})
    with pytest.raises(NotImplementedError, match="Empty must define stop_all"):
        Empty().stop_all()


def test_noop_stops_nothing() -> None:
    assert not NoopStopper()("a", {})
    assert not NoopStopper().stop_all()


def test_maximum_iteration_counts_the_results_of_each_trial() -> None:
    stopper = MaximumIterationStopper(2)
    assert [stopper(trial, {}) for trial in "aba"] == [False, False, True]
    assert not stopper.stop_all()


def test_a_function_stops_single_trials() -> None:
    stopper = FunctionStopper(lambda trial, result: bool(result["loss"] > 2))
    assert answers(stopper, [1, 3]) == [False, True]
    assert not stopper.stop_all()


def test_functions_and_stoppers_are_told_apart() -> None:
    class Lookalike:
        def __call__(self, trial: str, result: dict[str, Any]) -> bool:
            return False

        def stop_all(self) -> bool:
            return False

    assert FunctionStopper.is_valid_function(lambda trial, result: True)
    assert not FunctionStopper.is_valid_function(NoopStopper())
    assert not FunctionStopper.is_valid_function({"loss": 1})
    with pytest.raises(ValueError, match="derive its class from Stopper"):
        FunctionStopper.is_valid_function(Lookalike())
    with pytest.raises(TypeError, match="takes a function"):
        FunctionStopper(3)  # type: ignore[arg-type]


def test_combined_stops_when_one_does_and_shows_every_result_to_all() -> None:
    count = MaximumIterationStopper(2)
    stopper = CombinedStopper(FunctionStopper(lambda trial, result: True), count)
    assert stopper("a", {})
    assert count("a", {}), "the second stopper has seen the first result"
    assert not stopper.stop_all()
    clock = Clock()
    stopper = CombinedStopper(NoopStopper(), TimeoutStopper(0, clock=clock))
    assert stopper.stop_all()
    with pytest.raises(TypeError, match="FunctionStopper"):
        CombinedStopper(lambda trial, result: True)  # type: ignore[arg-type]


def test_a_trial_stops_on_its_plateau() -> None:
    stopper = TrialPlateauStopper("loss", std=0.1, num_results=3, grace_period=4)
    assert answers(stopper, [1, 1, 1, 1]) == [False, False, False, True]
    assert answers(stopper, [3, 2, 1, 1, 1], "b") == [False, False, False, False, True]
    assert not stopper.stop_all()


@pytest.mark.parametrize(
    ("mode", "value", "stops"), [("min", 0.0, True), ("min", 5.0, False), ("max", 5.0, True)]
)
def test_a_plateau_counts_once_the_threshold_is_reached(mode: str, value: float, stops: bool) -> None:
    stopper = TrialPlateauStopper("loss", num_results=2, grace_period=2, metric_threshold=1.0, mode=mode)
    assert answers(stopper, [value, value])[-1] is stops


def test_a_threshold_of_zero_needs_a_mode_too() -> None:
    with pytest.raises(ValueError, match="mode='min'"):
        TrialPlateauStopper("loss", metric_threshold=0.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_values_that_are_not_finite_are_no_plateau(bad: float) -> None:
    assert not any(answers(TrialPlateauStopper("loss", num_results=2, grace_period=1), [bad] * 5))
    assert not any(answers(ExperimentPlateauStopper("loss", top=2), [bad] * 5))


def test_results_without_the_metric_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    stopper = TrialPlateauStopper("loss", num_results=2, grace_period=2)
    for _ in range(3):
        assert not stopper("a", {"losses": 1.0})
    message = (
        "TrialPlateauStopper needs the metric 'loss', but the result has only ['losses']. "
        "Did you mean 'losses'? Report it, or set `metric` to a key that is reported."
    )
    assert [record.message for record in caplog.records] == [message]


def test_the_experiment_stops_when_its_best_results_are_equal() -> None:
    stopper = ExperimentPlateauStopper("loss", std=0.01, top=3)
    assert answers(stopper, [5, 1, 4, 1, 1, 9]) == [False, False, False, False, True, True]
    assert stopper.stop_all()


def test_patience_is_counted_in_results_in_a_row() -> None:
    stopper = ExperimentPlateauStopper("loss", top=2, patience=2, mode="max")
    assert answers(stopper, [1, 1, 5, 5, 5]) == [False, False, False, False, True]


def test_the_plateau_of_an_experiment_needs_its_metric() -> None:
    with pytest.raises(ValueError, match=r"has only \['accuracy'\]"):
        ExperimentPlateauStopper("loss")("a", {"accuracy": 1})
    with pytest.raises(TypeError, match="needs a number"):
        ExperimentPlateauStopper("loss")("a", {"loss": "low"})


@pytest.mark.parametrize(
    "arguments", [{"mode": "best"}, {"top": 1}, {"top": 2.5}, {"patience": -1}, {"std": 0.0}, {"std": "a"}]
)
def test_an_experiment_plateau_rejects_bad_arguments(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(arguments))} must be"):
        ExperimentPlateauStopper("loss", **arguments)


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=30), st.randoms())
def test_the_plateau_of_an_experiment_does_not_depend_on_the_order(values: list[float], random: Any) -> None:
    forward, shuffled = ExperimentPlateauStopper("loss", top=3), ExperimentPlateauStopper("loss", top=3)
    answers(forward, values)
    random.shuffle(values)
    answers(shuffled, values)
    assert forward.has_plateaued() == shuffled.has_plateaued()


@pytest.mark.parametrize("timeout", [60, 60.0, datetime.timedelta(minutes=1)])
def test_the_timeout_starts_with_the_first_question(timeout: float | datetime.timedelta) -> None:
    clock = Clock()
    stopper = TimeoutStopper(timeout, clock=clock)
    clock.now += 1000
    assert not stopper.stop_all()
    clock.now += 59
    assert not stopper.stop_all()
    assert not stopper("a", {})
    clock.now += 1
    assert stopper.stop_all()


def test_time_between_saving_and_restoring_does_not_count() -> None:
    stopper = TimeoutStopper(60, clock=Clock())
    stopper.stop_all()
    stopper._clock.now += 40  # type: ignore[attr-defined]
    stopper.stop_all()
    restored = cloudpickle.loads(cloudpickle.dumps(stopper))
    restored._clock.now += 1000
    assert not restored.stop_all()
    restored._clock.now += 19
    assert not restored.stop_all()
    restored._clock.now += 1
    assert restored.stop_all()


def test_the_clock_of_the_time_module_may_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    stopper = TimeoutStopper(60)
    monkeypatch.setattr(time, "monotonic", clock)
    assert not stopper.stop_all()
    clock.now += 60
    assert pickle.loads(pickle.dumps(stopper)).stop_all() is False
    assert stopper.stop_all()


@pytest.mark.parametrize("timeout", ["60", None, True])
def test_a_timeout_is_a_number_or_a_timedelta(timeout: Any) -> None:
    with pytest.raises(ValueError, match="timeout must be a number"):
        TimeoutStopper(timeout)


@pytest.mark.parametrize(
    "stopper",
    [
        MaximumIterationStopper(6),
        TrialPlateauStopper("loss", num_results=3, std=1.0),
        ExperimentPlateauStopper("loss", top=4, std=1.0),
        CombinedStopper(NoopStopper(), MaximumIterationStopper(5)),
    ],
    ids=lambda stopper: type(stopper).__name__,
)
def test_a_pickled_stopper_continues_identically(stopper: Stopper) -> None:
    answers(stopper, [5, 4, 3])
    restored = cloudpickle.loads(cloudpickle.dumps(stopper))
    rest = [3.0, 2.5, 2.4, 2.4, 2.4]
    assert answers(stopper, rest) == answers(restored, rest)
