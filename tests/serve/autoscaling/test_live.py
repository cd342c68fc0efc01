"""Deployments that scale up and down with their load, in real processes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import skate
from skate import serve
from skate.serve._build import build
from skate.serve._config.autoscaling import policy_to_fields
from skate.serve._controller.client import Client, connect
from skate.serve.config import AutoscalingConfig, AutoscalingPolicy
from skate.serve.exceptions import ExternalScalerDisabledError
from skate.serve.schema import (
    ApplicationStatus,
    DeploymentStatus,
    DeploymentStatusOverview,
    DeploymentStatusTrigger,
    ReplicaState,
)
from tests.serve.conftest import light
from tests.serve.load import Load
from tests.serve.waiting import until as until_true

pytestmark = pytest.mark.usefixtures("engine")


def quick(**fields: Any) -> AutoscalingConfig:
    """Return a configuration that reacts within moments."""
    usual = {
        "min_replicas": 1,
        "max_replicas": 3,
        "target_ongoing_requests": 1,
        "metrics_interval_s": 0.05,
        "look_back_period_s": 0.1,
        "upscale_delay_s": 0.0,
        "downscale_delay_s": 0.0,
    }
    return AutoscalingConfig(**{**usual, **fields})


@skate.remote(num_cpus=0)
class Gate:
    """Keeps those who wait until it is opened."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def wait(self) -> None:
        await self.event.wait()

    async def open(self) -> None:
        self.event.set()


@pytest.fixture
def gate(url: str) -> Iterator[Any]:
    made = Gate.remote()
    yield made
    skate.kill(made)


@light(max_ongoing_requests=10, autoscaling_config=quick())
class Waits:
    def __init__(self, gate: Any = None) -> None:
        self.gate = gate

    async def __call__(self) -> str:
        if self.gate is not None:
            await self.gate.wait.remote()
        return "done"

    async def at_once(self) -> str:
        return "done"


def state(deployment: str = "Waits", app: str = "default") -> DeploymentStatusOverview:
    return serve.status().applications[app].deployments[deployment]


def running(deployment: str = "Waits", app: str = "default") -> int:
    return state(deployment, app).replica_states.get(ReplicaState.RUNNING, 0)


def until(condition: Callable[[], bool]) -> None:
    until_true(condition, serve.status)


def until_running(count: int, deployment: str = "Waits", app: str = "default") -> None:
    until(lambda: running(deployment, app) == count and len(state(deployment, app).replica_states) <= 1)


def client() -> Client:
    found = connect()
    assert found is not None
    return found


def test_replicas_follow_the_requests_up_and_down(run: Callable[..., Any], gate: Any) -> None:
    handle = run(Waits.bind(gate))
    responses = [handle.remote() for _ in range(6)]
    until_running(3)
    until(lambda: state().status_trigger is DeploymentStatusTrigger.UPSCALE_COMPLETED)
    gate.open.remote()
    assert [response.result(timeout_s=60) for response in responses] == ["done"] * 6
    until_running(1)
    until(lambda: state().status_trigger is DeploymentStatusTrigger.DOWNSCALE_COMPLETED)
    assert state().status is DeploymentStatus.HEALTHY


def test_an_idle_deployment_goes_to_zero_and_comes_back_for_a_request(run: Callable[..., Any]) -> None:
    handle = run(Waits.options(autoscaling_config=quick(min_replicas=0, initial_replicas=1)).bind())
    for _ in range(3):
        assert handle.remote().result(timeout_s=60) == "done"
        until(lambda: state().replica_states == {})
        assert serve.status().applications["default"].status is ApplicationStatus.RUNNING


def test_no_request_fails_while_replicas_come_and_go(run: Callable[..., Any], url: str) -> None:
    scaling = quick(min_replicas=0, initial_replicas=0, target_ongoing_requests=0.5)
    run(Waits.options(autoscaling_config=scaling).bind())
    failures: list[str] = []
    for clients in (4, 1):
        with Load(url, clients) as load:
            load.wait_for("done", 30)
        failures += load.failures
        until(lambda: state().replica_states == {})
    assert failures == []


def test_requests_that_run_are_answered_when_their_replica_is_let_go(
    run: Callable[..., Any], gate: Any
) -> None:
    policy = AutoscalingPolicy(policy_function=_three_then_one)
    scaling = quick(policy=policy, initial_replicas=3)
    # Nine requests run at a time only if each replica has three: one without would be gone at once.
    handle = run(Waits.options(autoscaling_config=scaling, max_ongoing_requests=3).bind(gate))
    until_running(3)
    responses = [handle.remote() for _ in range(9)]
    until(lambda: state().replica_states.get(ReplicaState.STOPPING, 0) == 2)
    gate.open.remote()
    assert [response.result(timeout_s=60) for response in responses] == ["done"] * 9
    until_running(1)


def _three_then_one(context: Any) -> tuple[int, dict[str, Any]]:
    """Want three replicas until all of them have requests, and one from then on."""
    is_seen = context.policy_state.get("seen", False) or context.total_running_requests >= 9
    return (1 if is_seen else 3), {"seen": is_seen}


def test_a_policy_of_ones_own_decides_by_what_replicas_measure(run: Callable[..., Any]) -> None:
    def by_wishes(context: Any, most: int = 2) -> tuple[int, dict[str, Any]]:
        wishes = context.aggregated_metrics.get("wished", {})
        assert set(wishes) <= set(context.running_replicas)
        return min(most, int(max(wishes.values(), default=1))), {}

    @light(
        autoscaling_config=quick(
            policy=AutoscalingPolicy(policy_function=by_wishes, policy_kwargs={"most": 3})
        )
    )
    class Wishes:
        wished = 1

        async def wish(self, count: int) -> None:
            self.wished = count

        def record_autoscaling_stats(self) -> dict[str, float]:
            return {"wished": self.wished}

    handle = run(Wishes.bind())
    handle.wish.remote(5).result()
    until_running(3, "Wishes")


def test_a_policy_may_have_tasks_of_its_own(run: Callable[..., Any]) -> None:
    class Finds:
        """Asks another service, in the background, for the number of replicas."""

        def __init__(self, answer: int) -> None:
            self.answer = answer
            self.found: int | None = None
            self.task: asyncio.Task[None] | None = None

        async def find(self) -> None:
            await asyncio.sleep(0)
            self.found = self.answer

        def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
            if self.task is None:
                self.task = asyncio.get_running_loop().create_task(self.find())
            return self.found or 1, {}

    policy = AutoscalingPolicy(policy_function=Finds, policy_kwargs={"answer": 2})
    run(Waits.options(autoscaling_config=quick(policy=policy)).bind())
    until_running(2)


def test_a_policy_that_fails_is_told_in_the_status_and_harms_nobody(run: Callable[..., Any]) -> None:
    def broken(context: Any) -> tuple[int, dict[str, Any]]:
        raise LookupError("no such metric")

    config = quick(policy=AutoscalingPolicy(policy_function=broken))
    handle = run(Waits.options(autoscaling_config=config).bind())
    until(lambda: "LookupError: no such metric" in state().message)
    assert handle.remote().result(timeout_s=60) == "done"
    assert serve.status().applications["default"].status is ApplicationStatus.RUNNING
    run(Waits.bind())
    until(lambda: state().message == "")


def test_a_policy_that_hangs_keeps_nothing_else_from_happening(run: Callable[..., Any]) -> None:
    def hangs(context: Any) -> tuple[int, dict[str, Any]]:
        threading.Event().wait()
        return 1, {}

    config = quick(policy=AutoscalingPolicy(policy_function=hangs))
    handle = run(Waits.options(autoscaling_config=config).bind())
    assert [handle.remote().result(timeout_s=60) for _ in range(5)] == ["done"] * 5
    other = run(
        Waits.options(autoscaling_config=quick(min_replicas=2)).bind(), name="other", route_prefix="/o"
    )
    assert other.remote().result(timeout_s=60) == "done"
    assert running(app="other") == 2
    two = AutoscalingPolicy(policy_function=lambda context: (2, {}))
    run(Waits.options(autoscaling_config=quick(policy=two)).bind())
    until_running(2)


def test_an_application_has_one_policy_for_its_deployments(run: Callable[..., Any], gate: Any) -> None:
    def twice_as_many_behind(contexts: dict[Any, Any]) -> tuple[dict[Any, int], dict[Any, Any]]:
        (front,) = (each for each in contexts.values() if each.deployment_name == "Front")
        wanted = 2 if front.total_num_requests >= 2 else 1
        return {id: wanted if id.name == "Front" else 2 * wanted for id in contexts}, {}

    @light(max_ongoing_requests=10, autoscaling_config=quick())
    class Front:
        def __init__(self, behind: Any) -> None:
            self.behind = behind

        async def __call__(self) -> str:
            return await self.behind.remote()

    behind = Waits.options(autoscaling_config=quick(max_replicas=4))
    spec = build(Front.bind(behind.bind(gate)), "default")
    policy = policy_to_fields(AutoscalingPolicy(policy_function=twice_as_many_behind))
    client().deploy([replace(spec, config={"autoscaling_policy": policy})], wait=True)
    until_running(2)
    handle = serve.get_app_handle("default")
    responses = [handle.remote() for _ in range(3)]
    until_running(2, "Front")
    until_running(4)
    gate.open.remote()
    assert [response.result(timeout_s=60) for response in responses] == ["done"] * 3
    until_running(1, "Front")
    until_running(2)


def test_new_bounds_count_at_once(run: Callable[..., Any]) -> None:
    app = Waits.options(_internal=True, version="1")
    run(app.bind())
    run(app.options(autoscaling_config=quick(min_replicas=2)).bind())
    until_running(2)
    run(app.options(autoscaling_config=quick(initial_replicas=3, downscale_delay_s=600)).bind())
    until_running(3)


def test_requests_of_a_caller_that_is_gone_count_no_more(run: Callable[..., Any], gate: Any) -> None:
    handle = run(Waits.bind(gate))

    @skate.remote(num_cpus=0)
    class Caller:
        def call(self) -> None:
            self.responses = [handle.remote() for _ in range(6)]

    caller = Caller.remote()
    skate.get(caller.call.remote())
    until_running(3)
    skate.kill(caller)
    until_running(1)


def test_somebody_outside_scales_where_that_is_allowed(run: Callable[..., Any]) -> None:
    fixed = Waits.options(num_replicas=1)
    run(fixed.bind(), external_scaler_enabled=True)
    client().scale("default", "Waits", 3)
    until_running(3)
    client().scale("default", "Waits", 0)
    until(lambda: state().replica_states == {})
    with pytest.raises(ValueError, match="must be 0 or more"):
        client().scale("default", "Waits", -1)
    with pytest.raises(ValueError, match="no deployment 'Nobody'"):
        client().scale("default", "Nobody", 1)
    run(fixed.bind())
    with pytest.raises(ExternalScalerDisabledError, match="external_scaler_enabled"):
        client().scale("default", "Waits", 2)


def test_only_one_can_decide_how_many_replicas_there_are(run: Callable[..., Any]) -> None:
    with pytest.raises(
        ValueError, match=r"external_scaler_enabled is True, but 'Waits'.*Only one can decide"
    ):
        run(Waits.bind(), external_scaler_enabled=True)
    with pytest.raises(ValueError, match=r"max_replicas \(1\).*min_replicas \(2\)"):
        Waits.options(autoscaling_config={"min_replicas": 2, "max_replicas": 1})
    with pytest.raises(ValueError, match="num_replicas and autoscaling_config exclude each other"):
        Waits.options(num_replicas=2, autoscaling_config={"max_replicas": 3})
