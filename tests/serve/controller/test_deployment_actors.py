"""Actors that all replicas of a deployment share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import skate
from skate import serve
from skate.exceptions import RayActorError
from skate.serve._runtime.ids import NAMESPACE
from skate.serve.config import DeploymentActorConfig
from skate.serve.exceptions import RayServeException
from skate.serve.schema import ApplicationStatus, DeploymentStatus, DeploymentStatusTrigger
from skate.util import list_named_actors
from skate.util.state import list_tasks
from tests.serve.conftest import LIGHT, light
from tests.serve.waiting import until

pytestmark = pytest.mark.usefixtures("engine")

PREFIX = "SERVE_DEPLOYMENT_ACTOR::"


@skate.remote(num_cpus=0)
class Counter:
    def __init__(self, start: int = 0) -> None:
        self.count = start
        self.seen = serve.get_deployment_actor_context()

    def add(self) -> int:
        self.count += 1
        return self.count

    def context(self) -> Any:
        assert serve.get_deployment_actor_context() == self.seen
        return self.seen

    def process(self) -> int:
        return os.getpid()

    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def crash(self) -> None:
        os._exit(1)


class Broken:
    def __init__(self) -> None:
        raise ValueError("no such table")


def counter(start: int = 0, name: str = "counter", **options: Any) -> DeploymentActorConfig:
    return DeploymentActorConfig(
        name=name, actor_class=Counter, init_kwargs={"start": start}, actor_options=options
    )


class Counting:
    def __init__(self) -> None:
        self.at_start = skate.get(serve.get_deployment_actor("counter").context.remote())

    def __call__(self) -> int:
        return skate.get(serve.get_deployment_actor("counter").add.remote())

    def ask(self, method: str, *args: Any, of: str = "counter") -> Any:
        return skate.get(getattr(serve.get_deployment_actor(of), method).remote(*args))

    def version(self) -> str | None:
        return serve.get_replica_context().code_version


def counting(**options: Any) -> Any:
    options.setdefault("deployment_actors", [counter()])
    return light(**options)(Counting)


def actor_names() -> list[str]:
    names = [each["name"] for each in list_named_actors(all_namespaces=True)]
    return sorted(name for name in names if name.startswith(PREFIX))


def test_replicas_share_one_actor(run: Callable[..., Any]) -> None:
    handle = run(counting(num_replicas=2, deployment_actors=[counter(10)]).bind())
    assert sorted(handle.remote().result() for _ in range(6)) == [11, 12, 13, 14, 15, 16]


def test_an_actor_knows_whose_it_is_in_its_constructor_already(run: Callable[..., Any]) -> None:
    handle = run(counting().bind(), name="shop")
    context = handle.ask.remote("context").result()
    assert (context.app_name, context.deployment, context.actor_name) == ("shop", "Counting", "counter")
    assert context.code_version == handle.version.remote().result()
    assert actor_names() == [f"{PREFIX}shop::Counting::{context.code_version}::counter"]


def test_a_plain_class_with_positional_arguments_will_do(run: Callable[..., Any]) -> None:
    class Store:
        def __init__(self, *items: str) -> None:
            self.items = items

        def get(self) -> list[str]:
            return list(self.items)

    store = DeploymentActorConfig(name="store", actor_class=Store, init_args=("a", "b"))
    handle = run(counting(deployment_actors=[counter(), store]).bind())
    assert handle.ask.remote("get", of="store").result() == ["a", "b"]


def test_an_actor_has_the_environment_of_the_deployment_and_its_own(run: Callable[..., Any]) -> None:
    deployment = counting(
        ray_actor_options={**LIGHT, "runtime_env": {"env_vars": {"A": "deployment", "B": "deployment"}}},
        deployment_actors=[counter(runtime_env={"env_vars": {"B": "actor"}})],
    )
    handle = run(deployment.bind())
    assert handle.ask.remote("variable", "A").result() == "deployment"
    assert handle.ask.remote("variable", "B").result() == "actor"


def test_a_new_version_has_new_actors_and_the_old_ones_go(run: Callable[..., Any]) -> None:
    handle = run(counting(deployment_actors=[counter(0)]).bind())
    assert handle.remote().result() == 1
    (before,) = actor_names()
    handle = run(counting(deployment_actors=[counter(100)]).bind())
    assert handle.remote().result() == 101
    until(lambda: len(actor_names()) == 1, actor_names)
    assert actor_names() != [before]


def test_a_light_update_keeps_the_actors(run: Callable[..., Any]) -> None:
    deployment = counting().options(_internal=True, version="1")
    handle = run(deployment.bind())
    assert handle.remote().result() == 1
    handle = run(deployment.options(num_replicas=2).bind())
    assert handle.remote().result() == 2


def test_actors_go_with_the_deployment(run: Callable[..., Any]) -> None:
    run(counting().bind(), name="shop")
    assert len(actor_names()) == 1
    serve.delete("shop")
    assert actor_names() == []


def test_an_actor_whose_process_ends_comes_back(run: Callable[..., Any]) -> None:
    handle = run(counting(deployment_actors=[counter(5)]).bind())
    before = handle.ask.remote("process").result()
    with pytest.raises(RayActorError):
        handle.ask.remote("crash").result()

    def after() -> int | None:
        try:
            return int(handle.ask.remote("process").result())
        except (RayActorError, ValueError):
            return None

    assert until(after) != before
    assert handle.remote().result() == 6


def test_an_actor_that_somebody_killed_is_created_again(run: Callable[..., Any]) -> None:
    handle = run(counting(health_check_period_s=0.1).bind())
    (name,) = actor_names()
    skate.kill(skate.get_actor(name, NAMESPACE))

    def answer() -> int | None:
        try:
            return int(handle.remote().result())
        except (RayActorError, ValueError):
            return None

    assert until(answer) == 1
    assert actor_names() == [name]
    until(lambda: serve.status().applications["default"].status is ApplicationStatus.RUNNING, serve.status)


def test_a_deployment_whose_actor_cannot_start_fails_and_says_why(run: Callable[..., Any]) -> None:
    broken = DeploymentActorConfig(name="table", actor_class=Broken)
    deployment = counting(max_constructor_retry_count=2, deployment_actors=[counter(), broken])
    with pytest.raises(RuntimeError, match="no such table"):
        run(deployment.bind())
    overview = serve.status().applications["default"].deployments["Counting"]
    assert overview.status is DeploymentStatus.DEPLOY_FAILED
    assert overview.status_trigger is DeploymentStatusTrigger.DEPLOYMENT_ACTOR_FAILED
    assert "Deployment actor 'table' failed" in overview.message
    assert overview.replica_states == {}
    until(lambda: actor_names() == [], actor_names)


def wait_for_gate() -> None:
    while not os.path.exists(os.environ["GATE"]):
        time.sleep(0.01)


def test_an_actor_whose_creation_is_late_does_not_outlive_a_failed_deployment(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    environment = {
        "env_vars": {"GATE": str(gate)},
        "worker_process_setup_hook": f"{__name__}.wait_for_gate",  # of the worker that is to create the actor
    }
    broken = DeploymentActorConfig(name="table", actor_class=Broken)
    late = counter(name="late", runtime_env=environment)
    deployment = counting(max_constructor_retry_count=1, deployment_actors=[late, broken])
    with pytest.raises(RuntimeError, match="no such table"):
        run(deployment.bind())
    gate.touch()
    creation = [("name", "=", "ServeDeploymentActor:Counting:late")]
    until(lambda: {row.state for row in list_tasks(filters=creation)} <= {"FINISHED", "FAILED"})
    until(lambda: actor_names() == [], actor_names)


def test_asking_for_an_actor_that_was_not_declared_names_those_that_were(run: Callable[..., Any]) -> None:
    handle = run(counting().bind())
    with pytest.raises(ValueError, match=r"no deployment actor 'counters'\. It has: 'counter'"):
        handle.ask.remote("add", of="counters").result()


def test_outside_of_a_replica_and_an_actor_there_is_nothing_to_ask_for() -> None:
    with pytest.raises(RayServeException, match="may only be called from within the code of one"):
        serve.get_deployment_actor("counter")
    with pytest.raises(RayServeException, match="may only be called from within one"):
        serve.get_deployment_actor_context()
