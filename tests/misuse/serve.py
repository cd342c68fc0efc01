"""Mistakes in calls of Serve: deployments, applications, handles, decorators, and configuration files."""

from __future__ import annotations

import functools
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from skate import serve
from skate.cli.program import main
from skate.serve._config.options import OPTION_NAMES
from skate.serve.config import (
    AutoscalingConfig,
    AutoscalingPolicy,
    BackpressureConfig,
    ControllerOptions,
    DeploymentActorConfig,
    GangSchedulingConfig,
    HTTPOptions,
    RequestRouterConfig,
    gRPCOptions,
)
from skate.serve.schema import LoggingConfig, ServeApplicationSchema, ServeDeploySchema
from tests.misuse.support import Mistake, mistakes

# The folder of configuration files, which exists until the process ends.
_FOLDER = tempfile.TemporaryDirectory(prefix="skate_misuse_")
LIGHT = {"num_cpus": 0.1}


@serve.deployment(ray_actor_options=LIGHT)
class Echo:
    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix

    def __call__(self, word: str) -> str:
        return self.prefix + word

    def words(self, number: int) -> Iterator[str]:
        for each in range(number):
            yield str(each)


@serve.deployment
def greet() -> str:
    return "hello"


class Plain:
    """A class that is not deployed yet."""


app = Echo.bind()


@functools.cache
def _started() -> Any:
    serve.start(http_options={"port": 0})
    return serve.run(app, name="app", route_prefix="/app")


def handle() -> Any:
    """Return a handle to the application that all mistakes share."""
    return _started()


def started(function: Callable[..., Any]) -> Callable[[], Callable[..., Any]]:
    """Return what starts Serve, and returns a function."""

    def start() -> Callable[..., Any]:
        handle()
        return function

    return start


def in_a_session() -> Iterator[Mistake]:
    """Yield mistakes that are made in a session."""
    yield from deployments()
    yield from models()
    yield from decorators()
    yield from files()
    yield from commands()
    yield from applications()
    yield from handles()


def decorate(**options: Any) -> Any:
    return serve.deployment(**options)(Plain)


WRONG_OPTIONS: dict[str, list[Any]] = {
    "name": [3, "", "a#b", None],
    "num_replicas": ["many", 0, -1, 1.5, [2], True],
    "ray_actor_options": [3, "gpu", {"num_cpu": 1}, {"num_gpus": -1}, {"max_concurrency": 3}],
    "placement_group_bundles": [3, [], [3], [{"CPU": -1}], [{"CPU": "one"}], {"CPU": 1}],
    "placement_group_strategy": ["PACK", 3],
    "placement_group_bundle_label_selector": [3, [{"zone": "a"}]],
    "max_replicas_per_node": [0, 101, "two"],
    "user_config": [threading.Lock(), {"model": {1, 2}}],
    "max_ongoing_requests": ["many", 0, -1, 1.5, None],
    "max_queued_requests": ["many", 0, -2, 1.5, None],
    "backpressure_config": [3, {"status_code": 500}, {"retry": 3}],
    "autoscaling_config": [
        3,
        "auto",
        {"max_replicas": "many"},
        {"min_replica": 1},
        {"min_replicas": 3, "max_replicas": 2},
    ],
    "graceful_shutdown_wait_loop_s": ["soon", -1],
    "graceful_shutdown_timeout_s": ["soon", -1, None],
    "health_check_period_s": ["often", 0, -1],
    "health_check_timeout_s": ["long", 0, float("nan")],
    "logging_config": [3, "DEBUG", {"log_level": "LOUD"}, {"level": "INFO"}],
    "request_router_config": [3, {"request_router_class": "nowhere"}, {"request_router_class": 3}],
    "max_constructor_retry_count": ["often", 0],
    "gang_scheduling_config": [3, {"gang_size": 0}, {"size": 2}],
    "deployment_actors": [3, [3], [{"name": "cache"}]],
    "rolling_update_percentage": ["half", 0, 1.5],
    "max_surge_percent": ["half", -1, 101],
}


def shown(value: Any) -> str:
    text = repr(value)
    return "a lock" if "lock" in text and "block" not in text else text


def deployments() -> Iterator[Mistake]:
    """Yield each option of deployments with wrong values, and options that contradict each other."""
    for option, values in WRONG_OPTIONS.items():
        for value in values:
            make = functools.partial(decorate, **{option: value})
            yield Mistake("deployment", f"{option}={shown(value)}", make, (option,))
    for option in ("num_replicas", "user_config", "autoscaling_config", "max_queued_requests"):
        for value in WRONG_OPTIONS[option][:2]:
            make = functools.partial(Echo.options, **{option: value})
            yield Mistake("Deployment.options", f"{option}={shown(value)}", make, (option,))
    assert set(WRONG_OPTIONS) == {*OPTION_NAMES} - {"version"}
    for option in ("num_replica", "num_gpus", "route_prefix", "max_concurrent_queries", "colour"):
        for name, function in (("deployment", decorate), ("Deployment.options", Echo.options)):
            if (name, option) != ("deployment", "colour"):
                yield Mistake(name, f"{option}=1", functools.partial(function, **{option: 1}), (option,))
    for name, options in {
        "num_replicas and autoscaling_config": {"num_replicas": 2, "autoscaling_config": {"max_replicas": 3}},
        "max_replicas_per_node and placement_group_bundles": {
            "max_replicas_per_node": 1,
            "placement_group_bundles": [{"CPU": 1}],
        },
        "replicas that fill no gang": {"num_replicas": 3, "gang_scheduling_config": {"gang_size": 2}},
        "a bundle without the replica's resources": {
            "ray_actor_options": {"num_gpus": 1},
            "placement_group_bundles": [{"CPU": 1}],
        },
    }.items():
        yield Mistake("deployment", name, functools.partial(decorate, **options), (next(iter(options)),))
    yield Mistake("deployment", "of a number", lambda: serve.deployment(3), ("3",))
    yield Mistake(
        "deployment", "of a number, with options", lambda: serve.deployment(num_replicas=2)(3), ("3",)
    )
    yield Mistake("Deployment.options", "func_or_class=3", lambda: Echo.options(3), ("func_or_class",))
    yield Mistake("Echo", "a call", lambda: Echo("prefix"), ("bind",))
    yield Mistake("Echo", "remote", lambda: Echo.remote("word"), ("remote", "bind"))
    yield Mistake("Echo.set_logging_config", "3", lambda: Echo.set_logging_config(3), ("logging_config",))


def models() -> Iterator[Mistake]:
    """Yield wrong fields of the models that options are made of."""
    yield from mistakes(
        "AutoscalingConfig",
        {},
        lambda: AutoscalingConfig,
        wrong={
            "min_replicas": ["many", -1, 1.5, None],
            "max_replicas": ["many", 0],
            "initial_replicas": ["many", -1],
            "target_ongoing_requests": ["many", 0, None],
            "metrics_interval_s": ["often", 0],
            "look_back_period_s": [0],
            "upscaling_factor": ["fast", 0],
            "upscale_delay_s": ["late", -1],
            "downscale_delay_s": [-1],
            "aggregation_function": ["median", 3],
            "policy": [3, "nowhere"],
        },
    )
    for name, fields in {
        "min_replicas above max_replicas": {"min_replicas": 3, "max_replicas": 2},
        "initial_replicas above max_replicas": {"initial_replicas": 3, "max_replicas": 2},
        "initial_replicas below min_replicas": {"min_replicas": 2, "initial_replicas": 1, "max_replicas": 3},
        "a misspelt field": {"max_replica": 3},
        "a field that is gone": {"target_num_ongoing_requests_per_replica": 3},
    }.items():
        yield Mistake(
            "AutoscalingConfig", name, functools.partial(AutoscalingConfig, **fields), tuple(fields)
        )
    yield from mistakes(
        "AutoscalingPolicy",
        {},
        lambda: AutoscalingPolicy,
        wrong={"policy_function": ["nowhere", 3]},
    )
    yield from mistakes(
        "HTTPOptions",
        {},
        lambda: HTTPOptions,
        wrong={
            "host": [3],
            "port": ["http", -1, 70000],
            "request_timeout_s": ["long", -1],
            "keep_alive_timeout_s": ["long", -1],
            "location": ["Nowhere", 3],
            "root_path": [3],
            "middlewares": [["cors"]],
            "num_cpus": [2],
            "max_body_bytes": [0, "large"],
            "ssl_keyfile": ["key.pem"],
            "prot": [8000],
        },
    )
    yield from mistakes(
        "gRPCOptions",
        {},
        lambda: gRPCOptions,
        wrong={
            "port": ["grpc", 70000],
            "grpc_servicer_functions": ["add_Servicer", [3]],
            "request_timeout_s": [0, "long"],
            "ssl_certfile": ["cert.pem"],
        },
    )
    yield from mistakes(
        "BackpressureConfig",
        {},
        lambda: BackpressureConfig,
        wrong={"status_code": [500, "busy"], "retry_after_s": [-1, "later"], "code": [503]},
    )
    yield from mistakes(
        "RequestRouterConfig",
        {},
        lambda: RequestRouterConfig,
        wrong={
            "request_router_class": [3, "nowhere", "json:nothing"],
            "request_router_kwargs": [3, {"set": {1}}],
            "initial_backoff_s": [0, "soon"],
        },
    )
    yield from mistakes(
        "GangSchedulingConfig",
        {},
        lambda: GangSchedulingConfig,
        lambda: {"gang_size": 2},
        wrong={"gang_size": [0, "two", None], "gang_placement_strategy": ["TIGHT"]},
    )
    yield from mistakes(
        "DeploymentActorConfig",
        {},
        lambda: DeploymentActorConfig,
        lambda: {"name": "cache", "actor_class": Plain},
        wrong={
            "name": [3, ""],
            "actor_class": [3, "nowhere"],
            "init_kwargs": [3],
            "actor_options": [{"num_cpu": 1}],
        },
    )
    yield from mistakes(
        "LoggingConfig",
        {},
        lambda: LoggingConfig,
        wrong={
            "encoding": ["XML", 3],
            "log_level": ["LOUD", 7, None],
            "logs_dir": [3],
            "enable_access_log": ["perhaps"],
            "additional_log_standard_attrs": ["name", ["nme"]],
            "level": ["INFO"],
        },
    )
    yield from mistakes(
        "ControllerOptions",
        {},
        lambda: ControllerOptions,
        wrong={"runtime_env": [3, {"pip": []}, {"env_vars": {"A": 1}}], "env": [{}]},
    )


async def batched(numbers: list[int]) -> list[int]:
    return numbers


async def load(model_id: str) -> str:
    return model_id


async def load_two(model_id: str, version: int, more: int) -> str:
    return model_id


def load_now(model_id: str) -> str:
    return model_id


def decorators() -> Iterator[Mistake]:
    """Yield wrong options of decorators, and functions and classes that they cannot decorate."""
    yield from mistakes(
        "batch",
        serve.batch,
        wrong={
            "max_batch_size": ["many", 0, None],
            "batch_wait_timeout_s": [None, float("nan")],
            "max_concurrent_batches": ["many", 0],
            "batch_size_fn": [3],
        },
        options="batch_size",
    )
    yield Mistake("batch", "of a number", lambda: serve.batch(3), ("3",))
    yield Mistake("batch", "of a plain function", lambda: serve.batch(load_now), ("async",))
    yield Mistake(
        "batch",
        "of a plain function, with options",
        lambda: serve.batch(max_batch_size=3)(load_now),
        ("async",),
    )
    for name in ("set_max_batch_size", "set_batch_wait_timeout_s"):
        yield Mistake(
            f"batched.{name}",
            "'many'",
            functools.partial(lambda name: getattr(serve.batch(batched), name)("many"), name),
            ("many",),
        )
    yield from mistakes(
        "multiplexed",
        {"max_num_models_per_replica": "int"},
        lambda: serve.multiplexed,
        wrong={"max_num_models_per_replica": ["many", 0, None]},
        options="max_models",
    )
    yield Mistake("multiplexed", "of a number", lambda: serve.multiplexed(3), ("3",))
    yield Mistake("multiplexed", "of a plain function", lambda: serve.multiplexed(load_now), ("async",))
    yield Mistake("multiplexed", "of a function of three", lambda: serve.multiplexed(load_two), ("model_id",))
    yield Mistake(
        "get_multiplexed_model_id", "wrong=1", lambda: serve.get_multiplexed_model_id(1), ("argument",)
    )

    def called() -> None: ...

    class Called:
        def __call__(self) -> None: ...

    for name, app, target in (
        ("of a function", None, called),
        ("of a class with __call__", lambda: None, Called),
        ("without an application", None, Plain),
        ("with a number as the application", 3, Plain),
        ("with a text as the application", "module:app", Plain),
        ("of an instance", lambda: None, Plain()),
    ):
        yield Mistake(
            "ingress",
            name,
            functools.partial(lambda a, t: serve.ingress(a)(t), app, target),
            ("ingress", "app"),
        )
    yield Mistake(
        "ingress", "above @serve.deployment", lambda: serve.ingress(lambda: None)(Echo), ("ingress",)
    )
    for name in ("get_replica_context", "get_deployment_actor_context"):
        yield Mistake(name, "outside of a deployment", getattr(serve, name), (name,))
    yield Mistake(
        "get_deployment_actor",
        "outside of a deployment",
        lambda: serve.get_deployment_actor("cache"),
        ("get_deployment_actor",),
    )


def applications() -> Iterator[Mistake]:
    """Yield wrong arguments of the functions that run, find and delete applications."""
    lock = threading.Lock()
    for name, target in (
        ("a deployment that is not bound", Echo),
        ("a class", Plain),
        ("None", None),
        ("an import path", "module:app"),
    ):
        yield Mistake("run", name, functools.partial(serve.run, target), ("bind",))
    yield from mistakes(
        "run",
        {"name": "str", "route_prefix": "str | None"},
        started(serve.run),
        lambda: {"target": app},
        wrong={
            "name": [3, "", None],
            "route_prefix": ["app", "/app/", "/{id}", "", 3],
            "logging_config": [3, {"log_level": "LOUD"}],
            "controller_options": [3, {"env": {}}],
            "host": [3],
            "port": ["http", 70000],
        },
        options="route",
    )
    yield Mistake("Echo.bind", "a misspelt argument", lambda: Echo.bind(prefx="a"), ("prefx",))
    yield Mistake("Echo.bind", "too many arguments", lambda: Echo.bind(1, 2), ("argument",))
    yield Mistake("run", "a lock as an argument", started_call(lambda: serve.run(Echo.bind(lock))), ("lock",))
    yield Mistake(
        "run", "arguments for a function", started_call(lambda: serve.run(greet.bind(1))), ("bind",)
    )
    yield Mistake(
        "run",
        "the route of another application",
        started_call(lambda: serve.run(app, name="b", route_prefix="/app")),
        ("/app",),
    )
    yield from mistakes("run_many", {}, started(serve.run_many), wrong={"targets": [3, [], [3]]})
    yield Mistake("run_many", "an application", started_call(lambda: serve.run_many(app)), ("targets",))
    yield Mistake(
        "run_many", "a list of applications", started_call(lambda: serve.run_many([app])), ("targets",)
    )
    yield from mistakes(
        "start",
        {},
        started(serve.start),
        wrong={
            "proxy_location": ["Nowhere", 3],
            "http_options": [3, {"port": "http"}, {"prot": 1}],
            "grpc_options": [3, {"port": "grpc"}],
            "logging_config": [3, "DEBUG"],
            "tracing_config": [3, {"sampling_ratio": 2}],
            "controller_options": [3, {"env": {}}],
        },
        options="http_option",
    )
    yield from mistakes("delete", serve.delete, started(serve.delete), wrong={"name": [None, ""]})
    yield from mistakes(
        "get_app_handle",
        serve.get_app_handle,
        started(serve.get_app_handle),
        wrong={"name": ["absent", "ap", None]},
    )
    yield from mistakes(
        "get_deployment_handle",
        serve.get_deployment_handle,
        started(serve.get_deployment_handle),
        lambda: {"deployment_name": "Echo", "app_name": "app"},
        wrong={"deployment_name": ["echo", None], "app_name": ["absent", None]},
    )
    yield Mistake("status", "an argument", lambda: serve.status("app"), ("argument",))


def started_call(function: Callable[[], Any]) -> Callable[[], Any]:
    def call() -> Any:
        handle()
        return function()

    return call


def handles() -> Iterator[Mistake]:
    """Yield wrong calls of deployments."""
    yield from mistakes(
        "handle.options",
        {
            "method_name": "str",
            "multiplexed_model_id": "str",
            "session_id": "str",
            "stream": "bool",
        },
        lambda: handle().options,
        wrong={"method_name": [None, ""], "stream": ["yes"], "request_serialization": ["json", 3]},
        options="method",
    )
    yield Mistake("handle", "a call without remote", lambda: handle()("word"), ("remote",))
    yield Mistake("handle.words", "a call without remote", lambda: handle().words(3), ("remote",))
    for name, call in {
        "handle.wrds.remote": lambda: handle().wrds.remote(3).result(),
        "handle.options(method_name='wrds').remote": lambda: (
            handle().options(method_name="wrds").remote(3).result()
        ),
    }.items():
        yield Mistake(name, "a method that does not exist", call, ("wrds",))
    yield Mistake("handle.remote", "no argument", lambda: handle().remote().result(), ("word",))
    yield Mistake("handle.remote", "wrong=1", lambda: handle().remote("a", wrong=1).result(), ("wrong",))
    yield Mistake("handle.remote", "a lock", lambda: handle().remote(threading.Lock()).result(), ("lock",))
    yield Mistake(
        "handle.words.remote",
        "a generator without stream=True",
        lambda: handle().words.remote(3).result(),
        ("stream",),
    )
    yield Mistake(
        "handle.remote",
        "stream=True for a method that is no generator",
        lambda: list(handle().options(stream=True).remote("a")),
        ("stream", "generator"),
    )
    yield Mistake(
        "response.result",
        "timeout_s='three'",
        lambda: handle().remote("a").result(timeout_s="three"),
        ("timeout_s",),
    )
    yield Mistake(
        "response.result", "timeout_s=-7", lambda: handle().remote("a").result(timeout_s=-7), ("timeout_s",)
    )
    yield Mistake(
        "response.result", "a number by position", lambda: handle().remote("a").result(3), ("argument",)
    )
    yield Mistake(
        "stream.result", "a call", lambda: handle().words.options(stream=True).remote(1).result(), ("for",)
    )
    yield Mistake("handle.broadcast", "method_name=3", lambda: handle().broadcast(3), ("method_name",))
    yield Mistake("handle.dispatch", "selection=3", lambda: handle().dispatch(3, "a"), ("selection",))


def config(**changes: Any) -> dict[str, Any]:
    """Return a configuration file of one application with wrong fields."""
    return {"applications": [{"name": "app", "import_path": "module:app", **changes}]}


def files() -> Iterator[Mistake]:
    """Yield configuration files with wrong fields, as the command line reads them."""
    for name, content in {
        "no applications": {"http_options": {}},
        "applications that are no list": {"applications": "app"},
        "an application that is a text": {"applications": ["app"]},
        "no import_path": {"applications": [{"name": "app"}]},
        "an import_path without a name": config(import_path="module"),
        "a misspelt field of an application": config(route_prefx="/a"),
        "a route_prefix without a slash": config(route_prefix="app"),
        "a misspelt field on top": {**config(), "http_option": {}},
        "port='http'": {**config(), "http_options": {"port": "http"}},
        "proxy_location='Nowhere'": {**config(), "proxy_location": "Nowhere"},
        "target_capacity=200": {**config(), "target_capacity": 200},
        "num_replicas='many'": config(deployments=[{"name": "Echo", "num_replicas": "many"}]),
        "num_replicas=0": config(deployments=[{"name": "Echo", "num_replicas": 0}]),
        "max_ongoing_requests='many'": config(deployments=[{"name": "Echo", "max_ongoing_requests": "many"}]),
        "a misspelt field of a deployment": config(deployments=[{"name": "Echo", "num_replica": 2}]),
        "a deployment without a name": config(deployments=[{"num_replicas": 2}]),
        "deployments that are no list": config(deployments={"Echo": {"num_replicas": 2}}),
        "ray_actor_options with num_cpus='one'": config(
            deployments=[{"name": "Echo", "ray_actor_options": {"num_cpus": "one"}}]
        ),
        "autoscaling_config with max_replicas='many'": config(
            deployments=[{"name": "Echo", "autoscaling_config": {"max_replicas": "many"}}]
        ),
        "log_level='LOUD'": config(logging_config={"log_level": "LOUD"}),
        "two applications of one name": {"applications": config()["applications"] * 2},
    }.items():
        word = name.split("=")[0].split(" ")[-1]
        named = (word, "import_path", "applications", "Did you mean", "deployments", "name", "num_cpus")
        yield Mistake("skate serve deploy", f"a file with {name}", functools.partial(deploy, content), named)
    yield Mistake(
        "ServeDeploySchema", "applications=3", lambda: ServeDeploySchema(applications=3), ("applications",)
    )
    yield Mistake(
        "ServeApplicationSchema",
        "import_path=3",
        lambda: ServeApplicationSchema(import_path=3),
        ("import_path",),
    )


class CommandError(Exception):
    """A command failed: this is what it wrote."""


def invoke(*arguments: str) -> None:
    result = CliRunner().invoke(main, ("serve", *arguments), prog_name="skate")
    if result.exit_code and not isinstance(result.exception, SystemExit):
        assert result.exception is not None
        raise result.exception
    if result.exit_code:
        lines = [line for line in result.output.splitlines() if "pid=" not in line]  # no replica's
        raise CommandError("\n".join(lines))


def deploy(content: Any) -> None:
    path = Path(_FOLDER.name, "config.yaml")
    path.write_text(yaml.safe_dump(content))
    invoke("deploy", str(path))


def commands() -> Iterator[Mistake]:
    """Yield wrong command lines."""
    broken = Path(_FOLDER.name, "broken.yaml")
    broken.write_text("applications: [")
    program = Path(_FOLDER.name, "some_program.py")
    program.write_text("app = None")
    for arguments, named in (
        (("deploy", "absent.yaml"), "absent.yaml"),
        (("run", "absent.yaml"), "absent.yaml"),
        (("deploy", str(broken)), "YAML"),
        (("deploy",), "CONFIG_OR_IMPORT_PATH"),
        (("deploy", str(program)), "program"),
        (("run", "module"), "module"),
        (("run", "no_such_module:app"), "no_such_module"),
        (("run", "--app-dir", _FOLDER.name, "some_program:nothing"), "nothing"),
        (("run", "json:dumps", "size"), "size"),
        (("start", "--http-port", "http"), "http-port"),
        (("start", "--proxy-location", "Nowhere"), "proxy-location"),
        (("deplyo", "a.yaml"), "deplyo"),
        (("build", "module"), "module"),
    ):
        shown = " ".join(Path(each).name for each in arguments if each != _FOLDER.name)
        yield Mistake("skate serve", shown, functools.partial(invoke, *arguments), (named,))
