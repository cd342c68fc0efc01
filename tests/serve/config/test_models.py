"""The models of `skate.serve.config`: defaults, validation and error messages."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import pytest
from pydantic import ValidationError

import skate
from skate.serve._config import import_paths
from skate.serve._config.autoscaling import policy_from_fields, policy_to_fields
from skate.serve.autoscaling_policy import default_autoscaling_policy
from skate.serve.config import (
    AggregationFunction,
    AutoscalingConfig,
    AutoscalingPolicy,
    BackpressureConfig,
    ControllerOptions,
    DeploymentActorConfig,
    GangPlacementStrategy,
    GangRuntimeFailurePolicy,
    GangSchedulingConfig,
    HTTPOptions,
    ProxyLocation,
    RequestRouterConfig,
    gRPCOptions,
)


def three_replicas(ctx: Any) -> tuple[int, dict[str, Any]]:
    return 3, {}


class Router:
    pass


class Cache:
    pass


class TestAutoscalingConfig:
    def test_the_defaults_are_those_of_ray(self) -> None:
        config = AutoscalingConfig()
        assert (config.min_replicas, config.initial_replicas, config.max_replicas) == (1, None, 1)
        assert config.target_ongoing_requests == 2
        assert (config.upscale_delay_s, config.downscale_delay_s) == (30, 600)
        assert config.downscale_to_zero_delay_s is None
        assert (config.metrics_interval_s, config.look_back_period_s) == (10, 30)
        assert config.aggregation_function is AggregationFunction.MEAN
        assert config.policy.is_default_policy_function()

    def test_auto_means_up_to_a_hundred_replicas(self) -> None:
        config = AutoscalingConfig.default()
        assert (config.min_replicas, config.max_replicas, config.target_ongoing_requests) == (1, 100, 2)

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            (
                {"min_replicas": 4, "max_replicas": 3},
                ["max_replicas (3)", "min_replicas (4)", "raise max_replicas"],
            ),
            ({"min_replicas": 2}, ["max_replicas (1)", "min_replicas (2)"]),
            (
                {"min_replicas": 2, "max_replicas": 5, "initial_replicas": 1},
                ["min_replicas (2)", "initial_replicas (1)", "leave it out"],
            ),
            ({"max_replicas": 5, "initial_replicas": 6}, ["max_replicas (5)", "initial_replicas (6)"]),
            ({"target_ongoing_requests": None}, ["target_ongoing_requests", "policy"]),
        ],
    )
    def test_a_contradiction_names_both_sides_and_a_way_out(
        self, fields: dict[str, Any], words: list[str]
    ) -> None:
        with pytest.raises(ValueError) as caught:
            AutoscalingConfig(**fields)
        assert [word for word in words if word not in str(caught.value)] == []

    @pytest.mark.parametrize(
        "fields",
        [
            {"min_replicas": -1},
            {"max_replicas": 0},
            {"target_ongoing_requests": 0},
            {"upscale_delay_s": -1},
            {"downscaling_factor": 0},
            {"look_back_period_s": 0},
            {"aggregation_function": "median"},
        ],
    )
    def test_a_number_out_of_range_is_refused(self, fields: dict[str, Any]) -> None:
        with pytest.raises(ValidationError, match=next(iter(fields))):
            AutoscalingConfig(**fields)

    def test_the_newer_word_for_a_factor_wins_over_the_older_ones(self) -> None:
        older = {"smoothing_factor": 0.4, "upscale_smoothing_factor": 0.3}
        assert AutoscalingConfig(smoothing_factor=0.4).get_downscaling_factor() == 0.4
        assert AutoscalingConfig(**older).get_upscaling_factor() == 0.3
        assert AutoscalingConfig(**older, upscaling_factor=0.2).get_upscaling_factor() == 0.2

    def test_a_period_shorter_than_the_interval_of_reports_warns(self) -> None:
        with pytest.warns(FutureWarning, match=r"look_back_period_s.*metrics_interval_s"):
            AutoscalingConfig(look_back_period_s=5, metrics_interval_s=10)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            AutoscalingConfig(look_back_period_s=20, metrics_interval_s=10)

    def test_a_removed_name_says_what_to_write(self) -> None:
        with pytest.raises(ValueError, match="Use `target_ongoing_requests`"):
            AutoscalingConfig(target_num_ongoing_requests_per_replica=3)

    def test_a_misspelt_name_is_refused_and_a_newer_one_ignored(self) -> None:
        with pytest.raises(ValueError, match=r"no field 'max_replica'\. Did you mean 'max_replicas'"):
            AutoscalingConfig(max_replica=3)
        assert AutoscalingConfig(something_new=3) == AutoscalingConfig()

    def test_it_survives_pickling_and_its_own_dump(self) -> None:
        config = AutoscalingConfig(max_replicas=3, policy=AutoscalingPolicy(policy_function=three_replicas))
        assert pickle.loads(pickle.dumps(config)) == config
        assert AutoscalingConfig(**config.model_dump()).policy.get_policy() is three_replicas


class TestAutoscalingPolicy:
    def test_a_path_that_leads_nowhere_fails_at_once(self) -> None:
        with pytest.raises(ModuleNotFoundError):
            AutoscalingPolicy(policy_function="i.dont.exist:policy")
        with pytest.raises(AttributeError, match="no attribute 'four'"):
            AutoscalingPolicy(policy_function=f"{__name__}:four")

    def test_a_function_is_named_by_its_path(self, by_reference: None) -> None:
        policy = AutoscalingPolicy(policy_function=three_replicas)
        assert policy.policy_function == f"{__name__}.three_replicas"
        assert policy.get_policy() is three_replicas
        assert not policy.is_default_policy_function()

    def test_a_function_that_nobody_can_import_travels_with_its_code(self) -> None:
        policy = AutoscalingPolicy(policy_function=lambda ctx: (ctx, {}))
        assert pickle.loads(pickle.dumps(policy)).get_policy()(7) == (7, {})
        assert policy_from_fields(policy_to_fields(policy)).get_policy()(7) == (7, {})

    def test_rays_path_of_the_default_means_ours(self) -> None:
        policy = AutoscalingPolicy(policy_function="ray.serve.autoscaling_policy:default_autoscaling_policy")
        assert policy.is_default_policy_function()
        assert policy.get_policy() is default_autoscaling_policy
        other = AutoscalingPolicy(
            policy_function="ray.serve.autoscaling_policy.replica_queue_length_autoscaling_policy"
        )
        assert other.get_policy().__module__ == "skate.serve.autoscaling_policy"

    def test_arguments_must_be_json(self) -> None:
        with pytest.raises(ValueError, match="policy_kwargs is not JSON-serializable"):
            AutoscalingPolicy(policy_kwargs={"key": object()})

    def test_a_path_to_no_function_says_what_it_leads_to(self) -> None:
        with pytest.raises(TypeError, match=r"must be a function or a class"):
            AutoscalingPolicy(policy_function="math:pi").get_policy()


class TestHTTPOptions:
    def test_it_listens_on_the_loopback_unless_told_otherwise(self) -> None:
        options = HTTPOptions()
        assert (options.host, options.port) == ("127.0.0.1", 8000)
        assert options.location is None

    def test_no_host_is_no_proxy(self) -> None:
        assert HTTPOptions(host=None).location is ProxyLocation.Disabled

    def test_the_older_word_for_the_place_of_proxies_works_and_warns(self) -> None:
        with pytest.warns(DeprecationWarning, match="`location` in HTTPOptions"):
            assert HTTPOptions(location="NoServer").location is ProxyLocation.Disabled

    @pytest.mark.parametrize("fields", [{"middlewares": [object()]}, {"num_cpus": 2}])
    def test_what_was_removed_says_so(self, fields: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=f"`{next(iter(fields))}` in HTTPOptions has been removed"):
            HTTPOptions(**fields)

    @pytest.mark.parametrize("given", ["ssl_keyfile", "ssl_certfile"])
    def test_a_key_without_a_certificate_is_refused_both_ways(self, given: str) -> None:
        with pytest.raises(ValueError, match=f"only {given} is set"):
            HTTPOptions(**{given: "file.pem"})

    def test_a_password_is_not_shown(self) -> None:
        options = HTTPOptions(ssl_keyfile="k", ssl_certfile="c", ssl_keyfile_password="geheim")
        assert "geheim" not in repr(options)

    def test_a_port_is_a_port(self) -> None:
        with pytest.raises(ValidationError, match="port"):
            HTTPOptions(port=70000)

    def test_an_option_of_a_newer_version_is_ignored(self) -> None:
        assert HTTPOptions(something_new=1) == HTTPOptions()

    def test_a_place_that_does_not_exist_names_those_that_do(self) -> None:
        with pytest.raises(ValueError, match="'HeadOnly'"):
            ProxyLocation._normalize("Everywhere")
        with pytest.raises(TypeError, match="int"):
            ProxyLocation._normalize(3)  # type: ignore[arg-type]  # the mistake under test


class TestGRPCOptions:
    def test_functions_are_imported_when_asked_for(self) -> None:
        import os.path

        assert gRPCOptions().grpc_servicer_func_callable == []
        assert gRPCOptions(grpc_servicer_functions=["os.path.join"]).grpc_servicer_func_callable == [
            os.path.join
        ]

    def test_a_path_that_leads_nowhere_says_which(self) -> None:
        with pytest.raises(ModuleNotFoundError, match=r"no\.such\.function can't be imported!"):
            _ = gRPCOptions(grpc_servicer_functions=["no.such.function"]).grpc_servicer_func_callable

    def test_what_is_no_function_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"math\.pi is not a callable function!"):
            _ = gRPCOptions(grpc_servicer_functions=["math.pi"]).grpc_servicer_func_callable


class TestControllerOptions:
    def test_environment_variables_are_taken(self) -> None:
        assert ControllerOptions(runtime_env={"env_vars": {"A": "1"}}).runtime_env == {"env_vars": {"A": "1"}}

    @pytest.mark.parametrize(
        ("runtime_env", "message"),
        [
            ({"pip": ["numpy"]}, r"only supports \['env_vars'\], got \['pip'\]"),
            ({"env_vars": None}, "env_vars must be a dict"),
            ({"env_vars": {"A": 1}}, r"env_vars\['A'\] must be str, got int"),
            ({"env_vars": {"": "x"}}, "non-empty str"),
        ],
    )
    def test_anything_else_is_refused(self, runtime_env: dict[str, Any], message: str) -> None:
        with pytest.raises(ValidationError, match=message):
            ControllerOptions(runtime_env=runtime_env)


class TestParts:
    def test_backpressure_answers_503_or_429(self) -> None:
        assert BackpressureConfig().status_code == 503
        assert BackpressureConfig(status_code=429, retry_after_s=0).retry_after_s == 0
        for wrong in (
            {"status_code": 404},
            {"retry_after_s": float("inf")},
            {"retry_after_s": -1},
            {"retry": 1},
        ):
            with pytest.raises(ValidationError):
                BackpressureConfig(**wrong)

    def test_a_router_is_a_class_or_its_path(self) -> None:
        assert RequestRouterConfig().is_default_request_router()
        by_class, by_path = (
            RequestRouterConfig(request_router_class=each) for each in (Router, f"{__name__}.Router")
        )
        assert by_class.request_router_class == by_path.request_router_class == f"{__name__}.Router"
        assert by_class.get_request_router_class() is by_path.get_request_router_class() is Router

    def test_rays_default_router_is_ours(self) -> None:
        path = "ray.serve._private.request_router:PowerOfTwoChoicesRequestRouter"
        assert RequestRouterConfig(request_router_class=path).is_default_request_router()

    def test_a_gang_has_at_least_one_replica(self) -> None:
        config = GangSchedulingConfig(gang_size=4)
        assert config.gang_placement_strategy is GangPlacementStrategy.PACK
        assert config.runtime_failure_policy is GangRuntimeFailurePolicy.RESTART_GANG
        with pytest.raises(ValidationError):
            GangSchedulingConfig(gang_size=0)

    def test_what_gangs_cannot_do_yet_says_so(self) -> None:
        with pytest.raises(NotImplementedError, match="use RESTART_GANG"):
            GangSchedulingConfig(gang_size=2, runtime_failure_policy="RESTART_REPLICA")

    @pytest.mark.parametrize("given", [Cache, skate.remote(Cache), f"{__name__}:Cache"])
    def test_an_actor_of_a_deployment_is_a_class_an_actor_class_or_a_path(self, given: Any) -> None:
        config = pickle.loads(pickle.dumps(DeploymentActorConfig(name="cache", actor_class=given)))
        assert isinstance(config.actor_class, str)
        assert config.get_actor_class().__name__ == "Cache"

    def test_what_is_no_class_cannot_be_an_actor(self) -> None:
        with pytest.raises(TypeError, match="must be a class"):
            DeploymentActorConfig(name="cache", actor_class="math:pi").get_actor_class()


class TestReferences:
    @pytest.mark.parametrize("path", ["", "module", ":", "module:", "a:b:c", ".name"])
    def test_what_is_no_import_path_is_refused(self, path: str) -> None:
        with pytest.raises(ValueError, match="is not an import path"):
            import_paths.load(path)

    def test_a_name_may_be_nested(self) -> None:
        assert import_paths.load(f"{__name__}:TestReferences.test_a_name_may_be_nested") is not None
