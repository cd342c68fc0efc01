"""Autoscaling decisions, step by step, with a clock that the test advances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from skate.serve._autoscaling.application import ApplicationAutoscaler, Replicas, validate_external_target
from skate.serve._autoscaling.deployment import POLICY_PERIOD_S, DeploymentAutoscaler
from skate.serve._autoscaling.measurements import MAX_POINTS, Measurements, Series
from skate.serve._autoscaling.policies import apply_scaling_factor
from skate.serve._autoscaling.replica_counts import apply_target_capacity, round_up_to_gangs
from skate.serve._runtime.ids import DeploymentID
from skate.serve.autoscaling_policy import default_autoscaling_policy, replica_queue_length_autoscaling_policy
from skate.serve.config import AggregationFunction, AutoscalingConfig, AutoscalingContext, AutoscalingPolicy
from skate.serve.exceptions import ExternalScalerDisabledError

MEAN, MAX, MIN = AggregationFunction.MEAN, AggregationFunction.MAX, AggregationFunction.MIN


def scaler(
    *, policy: Callable[..., Any] | None = None, gang_size: int = 1, **fields: Any
) -> DeploymentAutoscaler:
    """Return an autoscaler that acts at once unless the test gives delays."""
    given = {
        "min_replicas": 1,
        "max_replicas": 10,
        "target_ongoing_requests": 2,
        "upscale_delay_s": 0,
        "downscale_delay_s": 0,
        **fields,
    }
    if policy is not None:
        given["policy"] = AutoscalingPolicy(policy_function=policy)
    return DeploymentAutoscaler(AutoscalingConfig(**given), "Model", "app", 0.0, gang_size=gang_size)


def series(*points: tuple[float, float], period: float = 10.0) -> Series:
    made = Series(period)
    for time, value in points:
        made.add(value, time)
    return made


class TestSeries:
    def test_a_value_counts_for_as_long_as_it_held(self) -> None:
        assert series((0, 10), (8, 0)).aggregate(MEAN, 0, 10) == pytest.approx(8)
        assert series((0, 10), (8, 0)).aggregate(MAX, 0, 10) == 10
        assert series((0, 10), (8, 0)).aggregate(MIN, 0, 10) == 0

    def test_what_held_at_the_start_of_a_period_counts_in_it(self) -> None:
        assert series((0, 4), (95, 8)).aggregate(MEAN, 90, 100) == pytest.approx(6)

    def test_before_it_was_known_a_number_does_not_count_as_zero(self) -> None:
        assert series((99, 6)).aggregate(MEAN, 90, 100) == 6
        assert series((100, 6)).aggregate(MEAN, 90, 100) == 6

    def test_old_values_are_dropped(self) -> None:
        long = series(*((float(second), float(second)) for second in range(100)))
        assert len(long.since(-1)) <= 12
        assert long.since(95)[0].value == 95

    def test_a_flood_of_values_is_thinned(self) -> None:
        flood = series(*((index / 10_000, float(index)) for index in range(10_000)), period=1.0)
        assert len(flood.since(0)) <= MAX_POINTS + 2
        assert flood.last == 9999

    def test_before_anything_is_known_there_is_nothing(self) -> None:
        assert [Series(10).aggregate(how, 0, 10) for how in AggregationFunction] == [0, 0, 0]
        assert Series(10).last == 0


class TestMeasurements:
    def test_waiting_and_running_requests_of_all_handles_add_up(self) -> None:
        measured = Measurements(10)
        measured.record("h1", 2, {"r1": 3, "r2": 1}, 0)
        measured.record("h2", 1, {"r1": 1}, 0)
        assert measured.requests(MEAN, 0) == 8
        assert measured.queued(MEAN, 0) == 3

    def test_a_replica_that_a_handle_stops_mentioning_has_none_of_its_requests(self) -> None:
        measured = Measurements(10)
        measured.record("h", 0, {"r": 4}, 0)
        measured.record("h", 0, {}, 5)
        assert measured.requests(MEAN, 10) == pytest.approx(2)
        assert measured.requests(MEAN, 15) == 0

    def test_of_a_replica_and_its_handles_the_higher_number_counts(self) -> None:
        measured = Measurements(10)
        measured.record("h", 1, {"r": 4}, 0)
        measured.record_replica("r", 7, {}, 0)
        assert measured.requests_now == 8
        measured.record("h", 1, {"r": 9}, 0)
        assert measured.requests_now == 10

    def test_who_is_gone_does_not_count_from_then_on(self) -> None:
        measured = Measurements(10)
        measured.record("h", 1, {"r1": 4, "r2": 2}, 0)
        measured.record_replica("r2", 3, {"memory": 5}, 0)
        assert measured.requests_now == 8
        measured.forget("r1")
        assert measured.requests_now == 4
        measured.forget("r2")
        assert measured.custom(MEAN, 0) == {}
        measured.forget("h")
        assert measured.requests_now == 0
        assert measured.requests(MEAN, 5) == 8
        assert measured.requests(MEAN, 10) == pytest.approx(4)
        assert measured.queued(MAX, 20) == 0

    def test_the_highest_load_is_that_of_one_moment(self) -> None:
        measured = Measurements(10)
        measured.record("h1", 5, {}, 0)
        measured.record("h1", 0, {}, 4)
        measured.record("h2", 5, {}, 6)
        assert measured.requests(MAX, 10) == 5
        assert measured.requests(MIN, 10) == 0
        assert measured.requests(MEAN, 10) == pytest.approx(4)

    def test_numbers_of_replicas_are_kept_by_name(self) -> None:
        measured = Measurements(10)
        measured.record_replica("r", 0, {"memory": 4, "cache": 1}, 0)
        measured.record_replica("r", 0, {"memory": 8}, 5)
        assert measured.custom(MEAN, 10) == {"memory": {"r": pytest.approx(6)}, "cache": {"r": 1}}
        assert [point.value for point in measured.raw(10)["memory"]["r"]] == [4, 8]


class TestSmoothing:
    @pytest.mark.parametrize(
        ("wanted", "current", "factors", "result"),
        [
            (20, 10, {}, 20),
            (20, 10, {"upscaling_factor": 0.5}, 15),
            (20, 10, {"upscaling_factor": 2}, 30),
            (5, 20, {"downscaling_factor": 0.5}, 13),
            (9, 10, {"downscaling_factor": 0.5}, 9),  # rounding up does not get stuck
            (9.5, 10, {"downscaling_factor": 0.1}, 10),  # but 9.5 replicas are ten
            (0, 1, {"downscaling_factor": 0.2}, 0),
            (2.1, 2, {}, 3),
            (2.0000000001, 2, {}, 2),
        ],
    )
    def test_a_factor_is_the_part_of_the_way(
        self, wanted: float, current: int, factors: dict[str, float], result: int
    ) -> None:
        assert apply_scaling_factor(wanted, current, AutoscalingConfig(max_replicas=30, **factors)) == result


class TestDecisions:
    def test_replicas_follow_ongoing_requests(self) -> None:
        model = scaler()
        model.record("h", 6, {"r": 4}, 0)
        assert model.decide(1, 1, 0) == 5
        model.record("h", 0, {"r": 1}, 100)
        assert model.decide(5, 5, 200) == 1

    def test_there_are_never_more_or_fewer_than_the_bounds_say(self) -> None:
        model = scaler(min_replicas=2, max_replicas=4)
        model.record("h", 1000, {}, 0)
        assert model.decide(2, 2, 0) == 4
        model.record("h", 0, {}, 1)
        assert model.decide(4, 4, 1000) == 2

    def test_a_target_outside_of_new_bounds_moves_at_once(self) -> None:
        model = scaler(downscale_delay_s=600, upscale_delay_s=600)
        model.reconfigure(AutoscalingConfig(min_replicas=3, max_replicas=5))
        assert model.decide(1, 1, 0) == 3
        assert model.decide(9, 9, 0) == 5

    def test_the_first_request_starts_a_replica_without_delay(self) -> None:
        model = scaler(min_replicas=0, upscale_delay_s=600)
        assert model.decide(0, 0, 0) == 0
        model.record("h", 0, {}, 1)
        model.record("h", 1, {}, 500)
        assert model.decide(0, 0, 500) == 1

    def test_the_last_replica_stays_while_there_is_a_request(self) -> None:
        model = scaler(min_replicas=0)
        model.record("h", 0, {}, 1)
        model.record("h", 1, {}, 500)
        assert model.decide(1, 1, 500) == 1
        told = scaler(min_replicas=0, policy=lambda ctx: (0, {}))
        told.record("h", 1, {}, 500)
        assert told.decide(3, 3, 500) == 1

    def test_while_replicas_start_the_target_stays(self) -> None:
        model = scaler(upscaling_factor=10)
        model.record("h", 1, {}, 0)
        assert [model.decide(0, 10, now) for now in range(5)] == [10] * 5
        idle = scaler(upscaling_factor=2, min_replicas=2)
        assert [idle.decide(0, 2, now) for now in range(5)] == [2] * 5

    def test_a_delay_has_to_pass_before_replicas_are_added(self) -> None:
        model = scaler(upscale_delay_s=30)
        model.record("h", 8, {}, 0)
        assert [model.decide(1, 1, now) for now in (0, 10, 29.9)] == [1, 1, 1]
        assert model.decide(1, 1, 30) == 4

    def test_a_wish_that_ends_begins_anew(self) -> None:
        model = scaler(upscale_delay_s=30, look_back_period_s=11)
        model.record("h", 8, {}, 0)
        assert model.decide(1, 1, 0) == 1
        model.record("h", 2, {}, 10)
        assert model.decide(1, 1, 25) == 1
        model.record("h", 8, {}, 26)
        assert model.decide(1, 1, 40) == 1
        assert model.decide(1, 1, 69) == 1
        assert model.decide(1, 1, 70) == 4

    def test_the_last_replica_goes_by_a_delay_of_its_own(self) -> None:
        model = scaler(min_replicas=0, downscale_delay_s=10, downscale_to_zero_delay_s=100)
        model.record("h", 0, {}, 0)
        assert model.decide(4, 4, 0) == 4
        assert model.decide(4, 4, 10) == 1
        assert [model.decide(1, 1, now) for now in (10, 50, 109)] == [1, 1, 1]
        assert model.decide(1, 1, 110) == 0

    def test_a_gang_comes_and_goes_as_one(self) -> None:
        model = scaler(gang_size=4, min_replicas=0, max_replicas=8)
        model.record("h", 1, {}, 0)
        assert model.decide(0, 0, 0) == 4
        model.record("h", 11, {}, 1)
        assert model.decide(4, 4, 1000) == 8
        model.record("h", 0, {}, 1001)
        assert model.decide(8, 8, 2000) == 4
        assert model.decide(4, 4, 2000) == 0

    def test_a_part_of_the_capacity_narrows_the_bounds(self) -> None:
        model = scaler(min_replicas=4, max_replicas=10)
        model.set_target_capacity(50)
        assert model.bounds == (2, 5)
        assert model.decide(8, 8, 0) == 5
        model.set_target_capacity(0)
        assert model.decide(5, 5, 0) == 0

    @pytest.mark.parametrize(("how", "replicas"), [("mean", 3), ("max", 5), ("min", 1)])
    def test_measurements_are_aggregated_as_asked(self, how: str, replicas: int) -> None:
        model = scaler(aggregation_function=how, look_back_period_s=20)
        model.record("h", 0, {}, 0)
        model.record("h", 10, {}, 10)
        assert model.decide(1, 1, 20) == replicas

    def test_decisions_are_told(self) -> None:
        model = scaler()
        model.record("h", 8, {}, 5)
        model.decide(1, 1, 5)
        (decision,) = model.decisions
        assert (decision.time, decision.before, decision.after) == (5, 1, 4)
        assert decision.reason == "4 replicas wanted, 1 running"

    def test_a_new_configuration_keeps_measurements_of_the_same_period(self) -> None:
        model = scaler()
        model.record("h", 8, {}, 0)
        model.reconfigure(model.config.model_copy(update={"target_ongoing_requests": 4}))
        assert model.decide(1, 1, 0) == 2


class TestNextDue:
    def test_nothing_is_due_while_all_is_steady(self) -> None:
        model = scaler()
        assert model.next_due(0) is None
        model.record("h", 2, {}, 0)
        model.decide(1, 1, 0)
        assert model.next_due(0) is None

    def test_the_end_of_a_delay_is_due(self) -> None:
        model = scaler(upscale_delay_s=30)
        model.record("h", 8, {}, 0)
        model.decide(1, 1, 0)
        assert model.direction == 1
        assert model.next_due(10) == 30
        assert model.decide(1, 1, 30) == 4
        assert model.next_due(30) is None

    def test_measurements_that_grow_old_are_due(self) -> None:
        model = scaler(look_back_period_s=20, downscale_delay_s=600)
        model.record("h", 8, {}, 0)
        model.record("h", 2, {}, 10)
        assert model.next_due(10) == 12
        assert model.next_due(40) is None

    def test_a_policy_of_the_users_is_asked_again_and_again(self) -> None:
        assert scaler(policy=lambda ctx: (1, {})).next_due(5) == 5 + POLICY_PERIOD_S


class TestPolicies:
    def test_a_policy_sees_the_deployment(self) -> None:
        seen: list[AutoscalingContext] = []
        model = scaler(min_replicas=2)
        model._policy = lambda ctx: (seen.append(ctx), (3, {}))[
            1
        ]  # not the pickled copy: the test looks inside
        model.config.policy.policy_function = "test"
        model.record("h", 4, {"r": 2}, 7)
        model.record_replica("r", 3, {"memory": 5}, 7)
        assert model.decide(2, 2, 7, ["r"]) == 3
        (context,) = seen
        assert context.deployment_id == DeploymentID("Model", "app")
        assert (context.deployment_name, context.app_name) == ("Model", "app")
        assert (context.current_num_replicas, context.target_num_replicas) == (2, 2)
        assert (context.total_num_requests, context.total_queued_requests) == (7, 4)
        assert context.total_running_requests == 3
        assert context.aggregated_metrics == {"memory": {"r": 5}}
        assert context.raw_metrics is not None
        assert context.raw_metrics["memory"]["r"][-1].value == 5
        assert (context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas) == (2, 10)
        assert (context.current_time, context.running_replicas) == (7, ["r"])
        assert model.context(3, 3, 8).last_scale_up_time == 7

    def test_its_state_comes_back_to_it(self) -> None:
        def count(ctx: AutoscalingContext) -> tuple[int, dict[str, int]]:
            asked = ctx.policy_state.get("asked", 0) + 1
            return asked, {"asked": asked}

        model = scaler(policy=count)
        assert [model.decide(5, 5, now) for now in range(3)] == [1, 2, 3]

    def test_a_class_is_made_once_with_its_arguments(self) -> None:
        class Steps:
            def __init__(self, step: int) -> None:
                self.step = step
                self.asked = 0

            def __call__(self, ctx: AutoscalingContext) -> int:
                self.asked += 1
                return self.asked * self.step

        policy = AutoscalingPolicy(policy_function=Steps, policy_kwargs={"step": 2})
        model = scaler(policy=None)
        model.reconfigure(model.config.model_copy(update={"policy": policy}))
        assert [model.decide(1, 1, now) for now in range(3)] == [2, 4, 6]

    def test_delays_and_bounds_apply_to_every_policy(self) -> None:
        model = scaler(policy=lambda ctx: (50, {}), upscale_delay_s=10)
        assert [model.decide(1, 1, now) for now in (0, 9, 10)] == [1, 1, 10]

    @pytest.mark.parametrize("returned", [None, "3", (3, 4), (-1, {}), (float("nan"), {}), (True, {})])
    def test_what_is_no_decision_is_an_error_and_changes_nothing(self, returned: Any) -> None:
        model = scaler(policy=lambda ctx: returned)
        assert model.decide(2, 2, 0) == 2
        assert model.error is not None
        assert "must return the number of replicas" in model.error

    def test_a_policy_that_fails_changes_nothing_and_says_why(self) -> None:
        def fails_once(ctx: AutoscalingContext) -> tuple[int, dict[str, Any]]:
            if not ctx.policy_state and ctx.current_time == 0:
                raise RuntimeError("no answer")
            return 3, {}

        model = scaler(policy=fails_once)
        assert model.decide(2, 2, 0) == 2
        assert model.error == "RuntimeError: no answer"
        assert model.decide(2, 2, 1) == 3
        assert model.error is None

    def test_the_public_policies_decide_by_requests(self) -> None:
        model = scaler()
        model.record("h", 7, {}, 0)
        context = model.context(1, 1, 0)
        assert (
            default_autoscaling_policy(context)
            == replica_queue_length_autoscaling_policy(context)
            == (3.5, {})
        )

    def test_what_is_expensive_is_asked_for_once_and_only_if_needed(self) -> None:
        calls = []
        context = scaler().context(1, 1, 0)
        context._total_num_requests = lambda: calls.append(1) or 3.0
        assert calls == []
        assert context.total_num_requests == context.total_num_requests == 3.0
        assert calls == [1]


class TestApplications:
    A, B = DeploymentID("A", "app"), DeploymentID("B", "app")

    def application(self, policy: Callable[..., Any], **fields: Any) -> ApplicationAutoscaler:
        config = AutoscalingConfig(
            **{"max_replicas": 9, "upscale_delay_s": 0, "downscale_delay_s": 0, **fields}
        )
        return ApplicationAutoscaler(
            AutoscalingPolicy(policy_function=policy),
            {name: DeploymentAutoscaler(config, name, "app", 0.0) for name in "AB"},
        )

    def test_one_policy_decides_for_all(self) -> None:
        def balance(
            contexts: dict[DeploymentID, AutoscalingContext],
        ) -> tuple[dict[DeploymentID, float], None]:
            load = sum(context.total_num_requests for context in contexts.values())
            return dict.fromkeys(contexts, load / 2), None

        app = self.application(balance)
        app.deployments["A"].record("h", 8, {}, 0)
        assert app.decide({"A": Replicas(1, 1), "B": Replicas(1, 1)}, 0) == {"A": 4, "B": 4}

    def test_what_it_does_not_mention_stays(self) -> None:
        app = self.application(lambda contexts: ({DeploymentID("A", "app"): 5}, {}))
        assert app.decide({"A": Replicas(1, 1), "B": Replicas(2, 2)}, 0) == {"A": 5, "B": 2}

    def test_states_are_kept_for_each_deployment(self) -> None:
        def count(contexts: dict[DeploymentID, AutoscalingContext]) -> Any:
            asked = {id: context.policy_state.get("asked", 0) + 1 for id, context in contexts.items()}
            return asked, {id: {"asked": number} for id, number in asked.items()}

        app = self.application(count)
        replicas = {"A": Replicas(5, 5), "B": Replicas(5, 5)}
        assert [app.decide(replicas, now)["B"] for now in range(3)] == [1, 2, 3]

    def test_bounds_delays_and_first_requests_are_each_deployments_own(self) -> None:
        app = self.application(
            lambda contexts: (dict.fromkeys(contexts, 50), {}), min_replicas=0, upscale_delay_s=10
        )
        app.deployments["A"].record("h", 1, {}, 0)
        replicas = {"A": Replicas(0, 0), "B": Replicas(1, 1)}
        assert app.decide(replicas, 0) == {"A": 1, "B": 1}
        assert app.decide({**replicas, "A": Replicas(1, 1)}, 10) == {"A": 1, "B": 9}

    @pytest.mark.parametrize(
        ("returned", "message"),
        [
            (3, "two dictionaries"),
            (({DeploymentID("C", "app"): 1}, {}), "not autoscaled deployments of it"),
            (({DeploymentID("A", "app"): "many"}, {}), "must return the number"),
        ],
    )
    def test_a_policy_that_fails_leaves_all_as_they_are(self, returned: Any, message: str) -> None:
        app = self.application(lambda contexts: returned)
        assert app.decide({"A": Replicas(1, 1), "B": Replicas(2, 2)}, 0) == {"A": 1, "B": 2}
        assert app.error is not None
        assert message in app.error

    def test_it_is_asked_again_and_again(self) -> None:
        assert self.application(lambda contexts: ({}, {})).next_due(3) == 3 + POLICY_PERIOD_S


class TestFromOutside:
    def test_who_is_allowed_to_sets_the_number(self) -> None:
        assert validate_external_target(True, "app", "Model", 3) == 3

    def test_who_is_not_hears_what_to_set(self) -> None:
        with pytest.raises(ExternalScalerDisabledError, match="external_scaler_enabled"):
            validate_external_target(False, "app", "Model", 3)

    def test_a_number_of_replicas_is_not_negative(self) -> None:
        with pytest.raises(ValueError, match="target_num_replicas"):
            validate_external_target(True, "app", "Model", -1)


@pytest.mark.parametrize(
    ("replicas", "capacity", "result"),
    [
        (0, 50, 0),
        (1, 1, 1),
        (3, 50, 2),
        (5, 25, 1),
        (10, 25, 3),
        (10, 75, 8),
        (10, 0, 0),
        (7, None, 7),
        (7, 100, 7),
    ],
)
def test_a_part_of_replicas_is_rounded_half_up_and_never_to_none(
    replicas: int, capacity: float | None, result: int
) -> None:
    assert apply_target_capacity(replicas, capacity) == result


def test_gangs_are_whole() -> None:
    assert [round_up_to_gangs(number, 3) for number in (0, 1, 3, 4)] == [0, 3, 3, 6]
