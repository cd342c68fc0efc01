"""Properties of every autoscaling decision, for any configuration and any reported load."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from skate.serve._autoscaling.deployment import DeploymentAutoscaler
from skate.serve._autoscaling.measurements import Series
from skate.serve.config import AggregationFunction, AutoscalingConfig

PERIOD = 20.0
loads = st.just(0.0) | st.floats(0.01, 500)
steps = st.floats(0.01, 50)
parts = st.floats(0.05, 1)
reports = st.lists(st.tuples(steps, st.sampled_from("abc"), loads, loads), min_size=1, max_size=12)


@st.composite
def configs(draw: st.DrawFn, least: int = 0, **fields: Any) -> AutoscalingConfig:
    low = draw(st.integers(least, 5))
    high = draw(st.integers(max(low, 1), 40))
    return AutoscalingConfig(
        min_replicas=low,
        max_replicas=high,
        target_ongoing_requests=draw(st.floats(0.5, 20)),
        upscale_delay_s=draw(st.floats(0, 60)),
        downscale_delay_s=draw(st.floats(0, 120)),
        downscale_to_zero_delay_s=draw(st.none() | st.floats(0, 120)),
        look_back_period_s=PERIOD,
        aggregation_function=draw(st.sampled_from(AggregationFunction)),
        **fields,
    )


def autoscaler(config: AutoscalingConfig, gang_size: int = 1) -> DeploymentAutoscaler:
    return DeploymentAutoscaler(config, "Model", "app", 0.0, gang_size=gang_size)


def at_rest(model: DeploymentAutoscaler, target: int, now: float) -> int:
    """Return the target after replicas have come and gone as decided, and nothing more is decided for now."""
    for _ in range(1000):
        decided = model.decide(target, target, now)
        if decided == target:
            return target
        target = decided
    raise AssertionError("it never comes to rest")


@settings(deadline=None, max_examples=50)
@given(
    config=configs(),
    reports=reports,
    up=st.floats(0.05, 10),
    down=st.floats(0.05, 10),
    capacity=st.none() | st.floats(0, 100),
    running=st.data(),
)
def test_a_target_is_always_within_its_bounds(
    config: AutoscalingConfig,
    reports: list[Any],
    up: float,
    down: float,
    capacity: float | None,
    running: st.DataObject,
) -> None:
    model = autoscaler(config.model_copy(update={"upscaling_factor": up, "downscaling_factor": down}))
    model.set_target_capacity(capacity)
    now, target = 0.0, config.min_replicas
    for step, handle, queued, busy in reports:
        now += step
        model.record(handle, queued, {"r": busy}, now)
        target = model.decide(running.draw(st.integers(0, target)), target, now)
        low, high = model.bounds
        assert low <= target <= high
        assert model.error is None


@settings(deadline=None, max_examples=50)
@given(config=configs(least=1), reports=reports)
def test_a_target_does_not_change_before_a_delay_is_over(
    config: AutoscalingConfig, reports: list[Any]
) -> None:
    model = autoscaler(config)
    now, target, changed = 0.0, config.min_replicas, 0.0
    for step, handle, queued, busy in reports:
        now += step
        model.record(handle, queued, {"r": busy}, now)
        decided = model.decide(target, target, now)
        if decided != target:
            delay = config.upscale_delay_s if decided > target else config.downscale_delay_s
            assert now - changed >= delay - 1e-3
            target, changed = decided, now


@settings(deadline=None, max_examples=50)
@given(config=configs(), reports=reports, up=parts, down=parts, load=loads)
def test_a_steady_load_leads_to_one_number_and_then_nothing_is_due(
    config: AutoscalingConfig, reports: list[Any], up: float, down: float, load: float
) -> None:
    """The way a controller uses it: it decides after reports and new replicas, and sleeps until what is due."""
    model = autoscaler(config.model_copy(update={"upscaling_factor": up, "downscaling_factor": down}))
    now, target = 0.0, config.min_replicas
    for step, handle, queued, busy in [*reports, *((0.0, handle, 0.0, 0.0) for handle in "abc")]:
        now += step
        model.record(handle, queued, {"r": busy}, now)
        target = at_rest(model, target, now)
    model.record("a", load, {}, now)
    target = at_rest(model, target, now)
    waits = 0
    while (due := model.next_due(now)) is not None:
        assert due >= now
        waits += 1
        assert waits < 500, "it never comes to rest"
        now = due
        target = at_rest(model, target, now)
    wanted = math.ceil(round(load / (config.target_ongoing_requests or 1), 6))
    assert target == min(max(wanted, config.min_replicas), config.max_replicas)


@settings(deadline=None, max_examples=50)
@given(config=configs(least=1), gang_size=st.integers(1, 6), reports=reports)
def test_replicas_fill_whole_gangs(config: AutoscalingConfig, gang_size: int, reports: list[Any]) -> None:
    bounds = {name: getattr(config, name) * gang_size for name in ("min_replicas", "max_replicas")}
    model = autoscaler(config.model_copy(update=bounds), gang_size)
    now, target = 0.0, bounds["min_replicas"]
    for step, handle, queued, busy in reports:
        now += step
        model.record(handle, queued, {"r": busy}, now)
        target = model.decide(target, target, now)
        assert target % gang_size == 0


@given(config=configs(least=1), less=loads, more=loads, current=st.integers(1, 40))
def test_more_requests_never_ask_for_fewer_replicas(
    config: AutoscalingConfig, less: float, more: float, current: int
) -> None:
    less, more = sorted((less, more))
    at_once = config.model_copy(update={"upscale_delay_s": 0.0, "downscale_delay_s": 0.0})
    decided = []
    for load in (less, more):
        model = autoscaler(at_once)
        model.record("a", load, {}, 0.0)
        decided.append(
            model.decide(current, min(max(current, config.min_replicas), config.max_replicas), 0.0)
        )
    assert decided == sorted(decided)


@given(points=st.lists(st.tuples(steps, loads), min_size=1, max_size=30), wait=st.floats(0, 50))
def test_a_mean_lies_between_the_lowest_and_the_highest(
    points: list[tuple[float, float]], wait: float
) -> None:
    series, now = Series(PERIOD), 0.0
    for step, value in points:
        now += step
        series.add(value, now)
    now += wait
    low, mean, high = (
        series.aggregate(AggregationFunction(how), now - PERIOD, now) for how in ("min", "mean", "max")
    )
    assert low <= mean + 1e-6
    assert mean <= high + 1e-6
