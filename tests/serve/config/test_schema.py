"""The models of `skate.serve.schema`: configuration files and status reports."""

from __future__ import annotations

import json
import logging
import pickle
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from skate.serve._autoscaling.deployment import DeploymentAutoscaler
from skate.serve._config.defaults import DEFAULT
from skate.serve._config.options import DeploymentOptions
from skate.serve._schema.config_file import to_schema
from skate.serve._schema.details import autoscaling_detail
from skate.serve.config import AutoscalingConfig, AutoscalingPolicy, BackpressureConfig, GangSchedulingConfig
from skate.serve.schema import (
    ApplicationStatus,
    AutoscalingStatus,
    CeleryAdapterConfig,
    DeploymentSchema,
    DeploymentStatus,
    DurationStats,
    HTTPOptionsSchema,
    LoggingConfig,
    ProxyStatus,
    RayActorOptionsSchema,
    ReplicaState,
    ScaleDeploymentRequest,
    ServeApplicationSchema,
    ServeDeploySchema,
    ServeInstanceDetails,
    ServeStatus,
    TaskProcessorAdapter,
    TaskProcessorConfig,
    TracingConfig,
)

# Each section and each kind of value that a file for Ray Serve may have.
FILE = """
proxy_location: HeadOnly
http_options:
  host: 0.0.0.0
  port: 8001
  request_timeout_s: 10.5
  keep_alive_timeout_s: 5
grpc_options:
  port: 9001
  grpc_servicer_functions: [user_pb2_grpc.add_UserServiceServicer_to_server]
logging_config:
  encoding: JSON
  log_level: DEBUG
  logs_dir: null
  enable_access_log: false
tracing_config:
  enabled: true
controller_options:
  runtime_env:
    env_vars: {LEVEL: '3'}
target_capacity: 50.0
applications:
- name: text
  route_prefix: /text
  import_path: text.app:build
  runtime_env:
    working_dir: https://example.com/text.zip
    pip: [numpy]
  args: {model: small, limit: 3}
  autoscaling_policy:
    policy_function: text.policies:together
  deployments:
  - name: Tokens
    num_replicas: auto
    autoscaling_config: {min_replicas: 0, max_replicas: 8, upscaling_factor: 0.5}
    max_ongoing_requests: 16
    max_queued_requests: 100
    backpressure_config: {status_code: 429, retry_after_s: 1.0}
    user_config: {threshold: 0.5, names: [a, b], nested: {deep: null}}
  - name: Model
    num_replicas: 4
    gang_scheduling_config: {gang_size: 2}
    graceful_shutdown_timeout_s: 5.0
    health_check_period_s: 3.0
    ray_actor_options:
      num_cpus: 0.5
      num_gpus: 1.0
      resources: {disk: 1.0}
      runtime_env: {env_vars: {A: b}}
    logging_config: {log_level: ERROR}
    request_router_config: {initial_backoff_s: 0.1}
    deployment_actors:
    - {name: cache, actor_class: text.cache:Cache, init_kwargs: {size: 3}}
    rolling_update_percentage: 0.5
    max_surge_percent: 25
- name: image
  route_prefix: null
  import_path: image.app
  external_scaler_enabled: true
  deployments:
  - name: Pixels
    placement_group_bundles: [{CPU: 1.0}, {GPU: 1.0}]
    placement_group_strategy: STRICT_PACK
    placement_group_bundle_label_selector: [{zone: a}]
"""


def deployment(**fields: Any) -> DeploymentSchema:
    return DeploymentSchema(name="Model", **fields)


class TestFiles:
    def test_what_a_file_says_is_what_its_model_writes(self) -> None:
        file = yaml.safe_load(FILE)
        model = ServeDeploySchema.model_validate(file)
        assert model.model_dump(mode="json", exclude_unset=True) == file
        assert ServeDeploySchema.model_validate(model.model_dump(exclude_unset=True)) == model
        assert pickle.loads(pickle.dumps(model)) == model

    def test_an_application_needs_an_import_path_alone(self) -> None:
        application = ServeDeploySchema.model_validate(
            {"applications": [{"import_path": "module:app"}]}
        ).applications[0]
        assert (application.name, application.route_prefix, application.deployments) == ("default", "/", [])
        assert application.external_scaler_enabled is False

    def test_the_network_stays_outside_unless_let_in(self) -> None:
        file = ServeDeploySchema(applications=[])
        assert file.http_options.host == "127.0.0.1"

    def test_names_of_a_newer_version_are_ignored(self) -> None:
        ServeDeploySchema(
            http_options=HTTPOptionsSchema(something_new=1),
            applications=[
                {"import_path": "a:b", "something_new": 1, "deployments": [{"name": "x", "something_new": 1}]}
            ],
            something_new=1,
        )

    def test_a_misspelt_name_is_refused_deep_inside(self) -> None:
        file = {"applications": [{"import_path": "a:b", "deployments": [{"name": "x", "num_replica": 1}]}]}
        with pytest.raises(
            ValidationError, match=r"applications\.0\.deployments\.0(.|\n)*Did you mean 'num_replicas'"
        ):
            ServeDeploySchema.model_validate(file)

    @pytest.mark.parametrize(
        ("applications", "message"),
        [
            ([{"name": "a", "route_prefix": "/a"}, {"name": "a", "route_prefix": "/b"}], 'application "a"'),
            ([{"name": "a"}, {"name": "b"}], 'route_prefix "/"'),
            ([{"name": ""}], "nonempty"),
            ([{"name": "a", "host": "x"}], 'host to "x".*at the top of the file'),
            ([{"name": "a", "port": 3}], 'port to "3".*at the top of the file'),
        ],
    )
    def test_applications_must_not_get_in_each_others_way(
        self, applications: list[Any], message: str
    ) -> None:
        with pytest.raises(ValidationError, match=message):
            ServeDeploySchema(applications=[{"import_path": "m:app", **each} for each in applications])

    def test_applications_without_routes_can_be_many(self) -> None:
        apps = [{"name": name, "import_path": "m:app", "route_prefix": None} for name in "abc"]
        assert len(ServeDeploySchema(applications=apps).applications) == 3

    @pytest.mark.parametrize("capacity", [-1, 100.1])
    def test_capacity_is_a_percentage(self, capacity: float) -> None:
        with pytest.raises(ValidationError):
            ServeDeploySchema(applications=[], target_capacity=capacity)

    def test_empty_files(self) -> None:
        ServeDeploySchema(**ServeDeploySchema.get_empty_schema_dict())
        ServeInstanceDetails(**ServeInstanceDetails.get_empty_schema_dict())
        assert ServeApplicationSchema.get_empty_schema_dict()["deployments"] == []


class TestApplications:
    @pytest.mark.parametrize("path", ["module.app", "a.b:app", "module:app"])
    def test_import_paths(self, path: str) -> None:
        assert ServeApplicationSchema(import_path=path).import_path == path

    @pytest.mark.parametrize("path", ["", ".", ":", "module", "module.", ".module", "a:b:c", "a.b:c:"])
    def test_what_is_no_import_path_is_refused(self, path: str) -> None:
        with pytest.raises(ValidationError, match="The import path"):
            ServeApplicationSchema(import_path=path)

    @pytest.mark.parametrize("route", ["text", "/text/", "/{text}"])
    def test_what_is_no_route_is_refused(self, route: str) -> None:
        with pytest.raises(ValidationError, match='route_prefix "'):
            ServeApplicationSchema(import_path="a:b", route_prefix=route)

    def test_a_deployment_is_mentioned_once(self) -> None:
        with pytest.raises(ValidationError, match='deployment "x"'):
            ServeApplicationSchema(import_path="a:b", deployments=[{"name": "x"}, {"name": "x"}])

    def test_only_one_scales(self) -> None:
        deployments = [{"name": "a", "num_replicas": 1}, {"name": "b", "num_replicas": "auto"}]
        with pytest.raises(ValidationError, match=r'external_scaler_enabled is set to True.*: "b"\.'):
            ServeApplicationSchema(import_path="a:b", external_scaler_enabled=True, deployments=deployments)

    def test_a_policy_is_kept_as_fields(self) -> None:
        policy = AutoscalingPolicy(policy_function="math:floor")
        application = ServeApplicationSchema(import_path="a:b", autoscaling_policy=policy)
        assert application.autoscaling_policy == {"policy_function": "math:floor", "policy_kwargs": {}}


class TestDeployments:
    def test_what_is_not_given_is_neither_there_nor_written(self) -> None:
        model = deployment(num_replicas=2)
        assert model.max_ongoing_requests is DEFAULT.VALUE
        assert model.model_dump() == {"name": "Model", "num_replicas": 2}
        assert json.loads(model.model_dump_json()) == model.model_dump()
        assert model.overrides() == {"num_replicas": 2}

    def test_what_is_given_as_none_is_there(self) -> None:
        assert deployment(user_config=None).overrides() == {"user_config": None}
        assert deployment(gang_scheduling_config=None, deployment_actors=None).gang_scheduling_config is None

    def test_parts_become_models(self) -> None:
        model = deployment(backpressure_config={"status_code": 429}, gang_scheduling_config={"gang_size": 2})
        assert model.backpressure_config == BackpressureConfig(status_code=429)
        assert model.gang_scheduling_config == GangSchedulingConfig(gang_size=2)

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"num_replicas": 0}, "num_replicas"),
            ({"num_replicas": "many"}, 'is an integer or "auto", not '),
            (
                {"num_replicas": 2, "autoscaling_config": {"max_replicas": 3}},
                "num_replicas.*autoscaling_config",
            ),
            ({"autoscaling_config": {"min_replicas": 4, "max_replicas": 3}}, "min_replicas"),
            ({"autoscaling_config": {"max_replica": 3}}, "Did you mean 'max_replicas'"),
            ({"max_queued_requests": 0}, "max_queued_requests"),
            ({"max_queued_requests": 1.5}, "max_queued_requests"),
            ({"max_ongoing_requests": None}, "max_ongoing_requests"),
            ({"health_check_period_s": 0}, "health_check_period_s"),
            ({"graceful_shutdown_timeout_s": -1}, "graceful_shutdown_timeout_s"),
            ({"backpressure_config": {"retry_after": 5}}, "retry_after"),
            ({"rolling_update_percentage": 0}, "rolling_update_percentage"),
            ({"max_surge_percent": 101}, "max_surge_percent"),
            ({"ray_actor_options": {"num_cpus": -1}}, "num_cpus"),
            ({"ray_actor_options": {"label_selector": {"-bad-": "v"}}}, "Invalid label key name"),
            (
                {"max_replicas_per_node": 2, "placement_group_bundles": [{"CPU": 1}]},
                "placement_group_bundles",
            ),
            (
                {"placement_group_bundle_label_selector": [{"a": "b"}]},
                "give placement_group_bundles too",
            ),
            (
                {
                    "placement_group_bundles": [{"CPU": 1}],
                    "placement_group_bundle_label_selector": [{"a": "b"}] * 2,
                },
                "give one for all of them, or one for each",
            ),
            (
                {"num_replicas": 5, "gang_scheduling_config": {"gang_size": 4}},
                "num_replicas.*must be a multiple",
            ),
            (
                {"autoscaling_config": {"max_replicas": 9}, "gang_scheduling_config": {"gang_size": 4}},
                r"autoscaling_config\.max_replicas.*must be a multiple",
            ),
            (
                {"max_replicas_per_node": 2, "gang_scheduling_config": {"gang_size": 2}},
                "max_replicas_per_node",
            ),
            (
                {"placement_group_strategy": "PACK", "gang_scheduling_config": {"gang_size": 2}},
                "gang_placement_strategy",
            ),
        ],
    )
    def test_what_cannot_be_is_refused(self, fields: dict[str, Any], message: str) -> None:
        with pytest.raises(ValidationError, match=message):
            deployment(**fields)

    def test_a_policy_is_not_imported_to_read_a_file(self) -> None:
        scaling = {
            "max_replicas": 3,
            "policy": {"policy_function": "not.here:yet"},
            "target_ongoing_requests": None,
        }
        assert deployment(autoscaling_config=scaling).autoscaling_config == scaling

    def test_autoscaling_is_seen(self) -> None:
        assert deployment(num_replicas="auto").is_autoscaling_configured()
        assert deployment(autoscaling_config={}).is_autoscaling_configured()
        assert not deployment(autoscaling_config=None, num_replicas=1).is_autoscaling_configured()

    def test_options_become_a_section_and_options_again(self) -> None:
        plain = DeploymentOptions(name="Model")
        for given in (
            {"num_replicas": 3, "user_config": {"a": 1}, "logging_config": {"log_level": "ERROR"}},
            {"num_replicas": "auto", "ray_actor_options": {"num_gpus": 1}},
            {"deployment_actors": [{"name": "cache", "actor_class": "a:B"}], "max_surge_percent": 10},
        ):
            options = plain.merged(given)
            assert plain.merged(to_schema(options).overrides()) == options
            written = to_schema(options, given_only=True)
            assert plain.merged(written.overrides()) == options
            assert written._get_user_configured_option_names() <= {*given, "name", "autoscaling_config"}
        assert to_schema(plain, given_only=True).model_dump() == {"name": "Model"}

    def test_a_file_overrides_the_program(self) -> None:
        in_program = DeploymentOptions(name="Model").merged({"num_replicas": 2, "max_ongoing_requests": 9})
        merged = in_program.merged(deployment(autoscaling_config={"max_replicas": 4}).overrides())
        assert merged.max_ongoing_requests == 9
        assert merged.autoscaling_config == AutoscalingConfig(max_replicas=4)

    def test_actor_options_that_are_not_given_stay_out(self) -> None:
        assert RayActorOptionsSchema().model_dump(exclude_unset=True) == {}
        model = deployment(ray_actor_options={"num_gpus": 1})
        merged = DeploymentOptions(name="Model").merged(model.overrides())
        assert merged.ray_actor_options == {"num_gpus": 1, "num_cpus": 1}


class TestLogging:
    def test_a_level_is_a_word_or_its_number(self) -> None:
        assert LoggingConfig(log_level=logging.WARNING).log_level == "WARNING"
        for wrong in ("debug", 15):
            with pytest.raises(ValidationError, match="is not a level of `logging`"):
                LoggingConfig(log_level=wrong)

    def test_an_encoding_is_one_of_two(self) -> None:
        assert LoggingConfig(encoding="JSON").encoding == "JSON"
        with pytest.raises(ValidationError, match="TEXT, JSON"):
            LoggingConfig(encoding="json")

    def test_attributes_are_those_of_records_and_once(self) -> None:
        assert LoggingConfig(
            additional_log_standard_attrs=["name", "name"]
        ).additional_log_standard_attrs == ["name"]
        with pytest.raises(ValidationError, match="Did you mean 'threadName'"):
            LoggingConfig(additional_log_standard_attrs=["thread_name"])

    def test_unknown_fields_are_refused(self) -> None:
        with pytest.raises(ValidationError):
            LoggingConfig(colour=True)
        with pytest.raises(ValidationError):
            TracingConfig(colour=True)

    def test_equal_configurations_have_equal_hashes(self) -> None:
        assert LoggingConfig()._compute_hash() == LoggingConfig()._compute_hash()
        assert LoggingConfig()._compute_hash() != LoggingConfig(encoding="JSON")._compute_hash()

    def test_a_part_of_requests_is_between_none_and_all(self) -> None:
        assert TracingConfig() == TracingConfig(enabled=False, exporter_import_path="", sampling_ratio=0.01)
        with pytest.raises(ValidationError, match=r"between 0\.0 and 1\.0"):
            TracingConfig(sampling_ratio=1.1)


class TestDetails:
    @pytest.fixture
    def details(self) -> ServeInstanceDetails:
        replica = {"replica_id": "r", "state": "RUNNING", "start_time_s": 1.0}
        return ServeInstanceDetails(
            controller_info={"node_id": "n"},
            proxies={"n": {"status": "HEALTHY"}},
            applications={
                "app": {
                    "name": "app",
                    "route_prefix": "/app",
                    "docs_path": None,
                    "status": "RUNNING",
                    "message": "fine",
                    "last_deployed_time_s": 123,
                    "source": "imperative",
                    "external_scaler_enabled": False,
                    "deployments": {
                        "Model": {
                            "name": "Model",
                            "status": "HEALTHY",
                            "status_trigger": "AUTOSCALING",
                            "message": "",
                            "deployment_config": {"name": "Model", "autoscaling_config": {"_code": b"x"}},
                            "target_num_replicas": 2,
                            "required_resources": {"CPU": 1},
                            "replicas": [replica, {**replica, "replica_id": "s", "state": "STARTING"}],
                        }
                    },
                }
            },
        )

    def test_the_overview_counts_replicas(self, details: ServeInstanceDetails) -> None:
        status = details._get_status()
        assert status.proxies == {"n": ProxyStatus.HEALTHY}
        overview = status.applications["app"]
        assert overview.status is ApplicationStatus.RUNNING
        assert overview.deployments["Model"].status is DeploymentStatus.HEALTHY
        assert overview.deployments["Model"].replica_states == {
            ReplicaState.RUNNING: 1,
            ReplicaState.STARTING: 1,
        }

    def test_what_is_shown_is_json_without_code(self, details: ServeInstanceDetails) -> None:
        shown = details._get_user_facing_json_serializable_dict(exclude_unset=True)
        json.dumps(shown)
        config = shown["applications"]["app"]["deployments"]["Model"]["deployment_config"]
        assert config == {"name": "Model", "autoscaling_config": {}}

    def test_autoscaling_is_told(self) -> None:
        config = AutoscalingConfig(max_replicas=5, upscale_delay_s=0)
        scaler = DeploymentAutoscaler(config, "Model", "app", 0.0)
        scaler.record("handle", 6, {}, 1.0)
        scaler.record_replica("replica", 0, {"memory": 2}, 1.0)
        assert scaler.decide(1, 1, 1.0) == 3
        detail = autoscaling_detail(scaler, 1, 3, 1.0, epoch=1000.0)
        assert detail.scaling_status is AutoscalingStatus.UPSCALING
        assert detail.metrics == {
            "total_num_requests": 6,
            "total_queued_requests": 6,
            "memory": {"replica": 2},
        }
        (decision,) = detail.decisions
        assert (decision.timestamp_s, decision.prev_num_replicas, decision.curr_num_replicas) == (1001, 1, 3)
        assert detail.errors == []
        assert autoscaling_detail(scaler, 3, 3, 1.0).scaling_status is AutoscalingStatus.STABLE

    def test_nothing_runs_at_first(self) -> None:
        assert ServeStatus() == ServeStatus(proxies={}, applications={}, target_capacity=None)

    def test_a_number_of_replicas_is_not_negative(self) -> None:
        with pytest.raises(ValidationError):
            ScaleDeploymentRequest(target_num_replicas=-1)

    def test_words_have_the_numbers_that_dashboards_know(self) -> None:
        assert {status.name: status.to_numeric() for status in ApplicationStatus} == {
            "NOT_STARTED": 3,
            "DEPLOYING": 5,
            "DEPLOY_FAILED": 1,
            "RUNNING": 6,
            "UNHEALTHY": 2,
            "DELETING": 4,
        }
        assert [status.to_numeric() for status in ProxyStatus] == [1, 2, 3, 4, 5]
        assert all(status.to_numeric() for status in DeploymentStatus)

    def test_durations_in_short(self) -> None:
        assert DurationStats.from_values([]) == DurationStats()
        stats = DurationStats.from_values([1.0, 2.0, 3.0])
        assert (stats.mean, stats.min, stats.max) == (2.0, 1.0, 3.0)
        assert stats.std == pytest.approx(0.8165, abs=1e-4)


class TestTasks:
    def test_a_consumer_has_a_queue_and_an_adapter(self) -> None:
        celery = CeleryAdapterConfig(broker_url="filesystem://", backend_url="file:///tmp/results")
        config = TaskProcessorConfig(queue_name="work", adapter_config=celery)
        assert (config.max_retries, config.adapter_config) == (3, celery)
        with pytest.raises(ValidationError):
            TaskProcessorConfig(queue_name="work")

    async def test_what_an_adapter_may_leave_out_says_what_to_use(self) -> None:
        names = TaskProcessorAdapter.__abstractmethods__
        adapter = type("Adapter", (TaskProcessorAdapter,), dict.fromkeys(names, lambda self: None))()
        with pytest.raises(
            NotImplementedError, match="Adapter has no get_metrics_async: use get_metrics_sync"
        ):
            await adapter.get_metrics_async()
        with pytest.raises(TypeError, match="abstract"):
            TaskProcessorAdapter()  # type: ignore[abstract]  # the mistake under test
