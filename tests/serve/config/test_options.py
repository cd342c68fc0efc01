"""The options of a deployment: validation, merging and comparison."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest

from skate.serve._config.defaults import DEFAULT
from skate.serve._config.options import (
    OPTION_NAMES,
    DeploymentOptions,
    needs_new_replicas,
    needs_reconfigure,
    needs_routing_update,
)
from skate.serve.config import AutoscalingConfig, BackpressureConfig, GangSchedulingConfig
from skate.serve.exceptions import DeploymentConfigError, RayServeException
from skate.serve.schema import LoggingConfig

PLAIN = DeploymentOptions(name="Model")

# A new option has to be put into one of these rows.
CHANGES = {
    "name": ("Other", ""),
    "version": ("2", "new"),
    "ray_actor_options": ({"num_cpus": 2}, "new"),
    "placement_group_bundles": ([{"CPU": 1}], "new"),
    "placement_group_strategy": ("SPREAD", "new"),
    "placement_group_bundle_label_selector": ([{"a": "b"}], "new"),
    "max_replicas_per_node": (3, "new"),
    "gang_scheduling_config": ({"gang_size": 1}, "new"),
    "deployment_actors": ([{"name": "a", "actor_class": "a:B"}], "new"),
    "user_config": ({"a": 1}, "told"),
    "graceful_shutdown_wait_loop_s": (1, "told"),
    "logging_config": ({"log_level": "DEBUG"}, "told"),
    "max_ongoing_requests": (9, "told routed"),
    "backpressure_config": ({"status_code": 429}, "told routed"),
    "request_router_config": ({"max_backoff_s": 3}, "told routed"),
    "max_queued_requests": (9, "routed"),
    "num_replicas": (3, ""),
    "autoscaling_config": ({"max_replicas": 3}, "told"),  # replicas begin to report
    "graceful_shutdown_timeout_s": (1, ""),
    "health_check_period_s": (1, ""),
    "health_check_timeout_s": (1, ""),
    "max_constructor_retry_count": (3, ""),
    "rolling_update_percentage": (0.5, ""),
    "max_surge_percent": (50, ""),
}


def options(**given: Any) -> DeploymentOptions:
    return PLAIN.merged(given)


class TestDefaults:
    def test_they_are_those_of_ray(self) -> None:
        assert PLAIN.num_replicas == 1
        assert PLAIN.ray_actor_options == {"num_cpus": 1}
        assert (PLAIN.max_ongoing_requests, PLAIN.max_queued_requests) == (5, -1)
        assert (PLAIN.graceful_shutdown_wait_loop_s, PLAIN.graceful_shutdown_timeout_s) == (2, 20)
        assert (PLAIN.health_check_period_s, PLAIN.health_check_timeout_s) == (10, 30)
        assert (PLAIN.rolling_update_percentage, PLAIN.max_surge_percent) == (0.2, 0)
        assert PLAIN.max_constructor_retry_count == 20
        assert (PLAIN.backpressure_status_code, PLAIN.backpressure_retry_after_s) == (503, None)

    def test_plain_options_do_not_load_pydantic(self) -> None:
        program = (
            "import sys, pickle\n"
            "from skate.serve._config.options import DeploymentOptions\n"
            "made = DeploymentOptions(name='Model').merged({'num_replicas': 2, 'user_config': {'a': 1}})\n"
            "pickle.loads(pickle.dumps(made))\n"
            "sys.exit('pydantic' in sys.modules)\n"
        )
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

    def test_they_survive_pickling(self) -> None:
        made = options(num_replicas="auto", gang_scheduling_config={"gang_size": 2}, logging_config={})
        assert pickle.loads(pickle.dumps(made)) == made


class TestMerging:
    def test_only_what_is_given_is_replaced(self) -> None:
        made = options(max_ongoing_requests=7).merged(
            {"user_config": {"a": 1}, "num_replicas": DEFAULT.VALUE}
        )
        assert (made.max_ongoing_requests, made.user_config, made.num_replicas) == (7, {"a": 1}, 1)
        assert made.given == {"max_ongoing_requests", "user_config"}
        assert PLAIN.max_ongoing_requests == 5

    def test_an_unknown_option_names_the_closest_one(self) -> None:
        with pytest.raises(
            TypeError, match=r"Deployment\.options\(\) .* 'num_replica'\. Did you mean 'num_replicas'"
        ):
            PLAIN.merged({"num_replica": 1}, "Deployment.options()")

    @pytest.mark.parametrize(
        ("name", "instead"),
        [
            ("route_prefix", r"serve\.run\(\.\.\., route_prefix"),
            ("max_concurrent_queries", "max_ongoing_requests"),
            ("init_args", r"\.bind"),
            ("num_gpus", "ray_actor_options={'num_gpus'"),
        ],
    )
    def test_an_older_spelling_says_what_to_write(self, name: str, instead: str) -> None:
        with pytest.raises(TypeError, match=instead):
            PLAIN.merged({name: 1})

    def test_a_user_cannot_give_a_version_and_serve_can(self) -> None:
        with pytest.raises(ValueError, match=r"`version` in `@serve\.deployment` has been removed"):
            PLAIN.merged({"version": "1"}, "@serve.deployment")
        assert options(version="1").version == "1"

    def test_auto_follows_the_load_with_bounds_that_can_be_given(self) -> None:
        made = options(num_replicas="auto", autoscaling_config={"min_replicas": 2})
        assert made.num_replicas is None
        assert made.is_autoscaled
        assert made.autoscaling_config == AutoscalingConfig(
            min_replicas=2, max_replicas=100, target_ongoing_requests=2
        )
        assert made.first_replicas == 2

    def test_auto_takes_the_fields_that_a_model_was_given(self) -> None:
        made = options(num_replicas="auto", autoscaling_config=AutoscalingConfig(target_ongoing_requests=9))
        assert made.autoscaling_config is not None
        assert (made.autoscaling_config.max_replicas, made.autoscaling_config.target_ongoing_requests) == (
            100,
            9,
        )

    def test_a_number_and_autoscaling_exclude_each_other(self) -> None:
        with pytest.raises(DeploymentConfigError, match=r"num_replicas .* autoscaling_config") as caught:
            options(num_replicas=3, autoscaling_config={"max_replicas": 5})
        assert caught.value.options == ("num_replicas", "autoscaling_config")
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, RayServeException)

    def test_the_one_given_last_ends_the_other(self) -> None:
        scaled = options(autoscaling_config={"max_replicas": 5})
        fixed = scaled.merged({"num_replicas": 3})
        assert (fixed.num_replicas, fixed.autoscaling_config) == (3, None)
        assert fixed.merged({"autoscaling_config": {"max_replicas": 4}}).num_replicas is None
        assert scaled.merged({"autoscaling_config": None}).num_replicas == 1
        assert scaled.merged({"num_replicas": None}).is_autoscaled
        assert options(num_replicas=3).merged({"autoscaling_config": None}).num_replicas == 3
        assert options(num_replicas=None).num_replicas == 1

    def test_parts_may_be_dictionaries_or_models(self) -> None:
        as_dict = options(backpressure_config={"status_code": 429, "retry_after_s": 2})
        assert as_dict == options(backpressure_config=BackpressureConfig(status_code=429, retry_after_s=2))
        assert (as_dict.backpressure_status_code, as_dict.backpressure_retry_after_s) == (429, 2)
        assert options(logging_config=LoggingConfig(log_level="DEBUG")) == options(
            logging_config={"log_level": 10}
        )

    def test_a_later_change_of_what_was_given_changes_nothing(self) -> None:
        config = {"models": ["a"]}
        made = options(user_config=config)
        config["models"].append("b")
        assert made.user_config == {"models": ["a"]}


class TestChecks:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("num_replicas", 0),
            ("num_replicas", -1),
            ("num_replicas", "many"),
            ("num_replicas", 1.5),
            ("num_replicas", True),
            ("max_ongoing_requests", 0),
            ("max_ongoing_requests", None),
            ("max_queued_requests", 0),
            ("max_queued_requests", -2),
            ("max_queued_requests", 1.5),
            ("health_check_period_s", 0),
            ("health_check_timeout_s", None),
            ("graceful_shutdown_timeout_s", -1),
            ("graceful_shutdown_wait_loop_s", float("nan")),
            ("max_constructor_retry_count", 0),
            ("rolling_update_percentage", 0),
            ("rolling_update_percentage", 1.5),
            ("max_surge_percent", 101),
            ("max_replicas_per_node", 101),
            ("user_config", {"key": object()}),
            ("backpressure_config", {"status_code": 404}),
            ("autoscaling_config", {"min_replicas": 3}),
        ],
    )
    def test_a_wrong_value_is_refused_by_name(self, name: str, value: Any) -> None:
        with pytest.raises(ValueError, match=f"(?i){name.replace('_', '_?')}"):
            options(**{name: value})

    def test_a_name_is_a_word(self) -> None:
        for wrong in ("", "a#b"):
            with pytest.raises(ValueError, match="The name of a deployment"):
                options(name=wrong)
        with pytest.raises(TypeError, match="string"):
            options(name=3)

    def test_an_unknown_option_of_the_actor_names_the_closest_one(self) -> None:
        with pytest.raises(
            ValueError, match=r"'num_cpu' in ray_actor_options is not allowed: Did you mean 'num_cpus'"
        ):
            options(ray_actor_options={"num_cpu": 1})

    def test_an_option_of_actors_that_serve_decides_says_who_does(self) -> None:
        with pytest.raises(ValueError, match="use max_ongoing_requests of the deployment"):
            options(ray_actor_options={"max_concurrency": 3})

    def test_values_of_the_actors_options_are_checked_as_everywhere(self) -> None:
        with pytest.raises(TypeError, match="num_cpus"):
            options(ray_actor_options={"num_cpus": "two"})
        with pytest.raises(ValueError, match="negative"):
            options(ray_actor_options={"memory": -1})
        with pytest.raises(TypeError, match="dictionary"):
            options(ray_actor_options=3)
        assert options(ray_actor_options={"num_gpus": 0.5}).ray_actor_options == {
            "num_gpus": 0.5,
            "num_cpus": 1,
        }

    def test_a_replica_must_fit_into_its_first_bundle(self) -> None:
        with pytest.raises(ValueError, match=r"has 0\.5 'CPU', but it needs num_cpus=1"):
            options(placement_group_bundles=[{"CPU": 0.5}])
        with pytest.raises(ValueError, match="has 0 'disk', but it needs disk=1"):
            options(placement_group_bundles=[{"CPU": 1}], ray_actor_options={"resources": {"disk": 1}})
        with pytest.raises(ValueError, match="has only 0 values"):
            options(placement_group_bundles=[{"CPU": 0}], ray_actor_options={"num_cpus": 0})

    def test_a_strategy_or_selector_needs_bundles(self) -> None:
        with pytest.raises(ValueError, match="`placement_group_bundles` must also be provided"):
            options(placement_group_strategy="PACK")
        with pytest.raises(ValueError, match="`placement_group_bundles` must also be provided"):
            options(placement_group_bundle_label_selector=[{"gpu": "T4"}])

    def test_one_selector_is_for_all_bundles(self) -> None:
        made = options(
            placement_group_bundles=[{"CPU": 1}, {"CPU": 1}],
            placement_group_bundle_label_selector=[{"gpu": "T4"}],
        )
        assert made.placement_group_bundle_label_selector == [{"gpu": "T4"}, {"gpu": "T4"}]

    def test_a_limit_for_each_node_and_bundles_exclude_each_other(self) -> None:
        with pytest.raises(
            DeploymentConfigError,
            match="max_replicas_per_node and placement_group_bundles exclude each other",
        ):
            options(placement_group_bundles=[{"CPU": 1}], max_replicas_per_node=2)

    def test_actors_of_a_deployment_have_different_names(self) -> None:
        twice = [{"name": "cache", "actor_class": "a:B"}] * 2
        with pytest.raises(ValueError, match="unique names: rename cache"):
            options(deployment_actors=twice)


class TestGangs:
    def test_replicas_fill_whole_gangs(self) -> None:
        gang = GangSchedulingConfig(gang_size=4)
        assert options(num_replicas=8, gang_scheduling_config=gang).gang_size == 4
        for replicas in (1, 5):
            with pytest.raises(ValueError, match=r"num_replicas.*must be a multiple of gang_size \(4\)"):
                options(num_replicas=replicas, gang_scheduling_config=gang)

    def test_bounds_of_autoscaling_do_too(self) -> None:
        with pytest.raises(ValueError, match=r"autoscaling_config\.max_replicas.*must be a multiple"):
            options(autoscaling_config={"max_replicas": 9}, gang_scheduling_config={"gang_size": 4})

    def test_what_nobody_gave_is_rounded(self) -> None:
        made = options(num_replicas="auto", gang_scheduling_config={"gang_size": 3})
        assert made.autoscaling_config is not None
        assert (made.autoscaling_config.min_replicas, made.autoscaling_config.max_replicas) == (3, 99)
        scaled = options(autoscaling_config={"max_replicas": 8}, gang_scheduling_config={"gang_size": 4})
        assert scaled.first_replicas == 4

    @pytest.mark.parametrize(
        "other",
        [
            {"max_replicas_per_node": 2},
            {"placement_group_bundles": [{"CPU": 1}], "placement_group_strategy": "PACK"},
        ],
    )
    def test_other_ways_to_place_replicas_exclude_them(self, other: dict[str, Any]) -> None:
        with pytest.raises(
            DeploymentConfigError, match="has no meaning together with gang_scheduling_config"
        ):
            options(num_replicas=2, gang_scheduling_config={"gang_size": 2}, **other)


class TestChanges:
    def test_differences_are_named(self) -> None:
        assert options(num_replicas=3, user_config=1).differences(PLAIN) == {"num_replicas", "user_config"}
        assert options(num_replicas=1).differences(PLAIN) == set()
        assert options(num_replicas=1) == PLAIN  # that it was written down does not count

    def test_every_option_is_sorted(self) -> None:
        assert CHANGES.keys() == set(OPTION_NAMES)

    @pytest.mark.parametrize("name", OPTION_NAMES)
    def test_a_change_asks_for_what_it_needs(self, name: str) -> None:
        value, effects = CHANGES[name]
        before = PLAIN
        if name.startswith("placement_group_") and name != "placement_group_bundles":
            before = options(placement_group_bundles=[{"CPU": 1}])
        after = before.merged({name: value})
        seen = {
            "new": needs_new_replicas(before, after),
            "told": needs_reconfigure(before, after),
            "routed": needs_routing_update(before, after),
        }
        assert {effect for effect, is_needed in seen.items() if is_needed} == set(effects.split())

    def test_other_bounds_of_autoscaling_do_not_reach_replicas(self) -> None:
        scaled = options(autoscaling_config={"max_replicas": 3})
        assert not needs_reconfigure(scaled, options(autoscaling_config={"max_replicas": 5}))
        assert needs_reconfigure(
            scaled, options(autoscaling_config={"max_replicas": 3, "metrics_interval_s": 1})
        )
