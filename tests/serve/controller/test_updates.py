"""Deployments of new versions under load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from skate import serve
from skate.serve.schema import ApplicationStatus, DeploymentStatus, ReplicaRank
from tests.serve.conftest import light
from tests.serve.load import Load

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("engine")]


@light
class Says:
    def __init__(self, what: str) -> None:
        if what == "broken":
            raise RuntimeError("this version is broken")
        self.what = what
        self.configured: Any = None

    def reconfigure(self, config: Any) -> None:
        self.configured = config

    async def __call__(self) -> str:
        return self.what if self.configured is None else f"{self.what} {self.configured}"

    async def replica(self) -> str:
        return serve.get_replica_context().replica_tag


def test_a_new_version_takes_over_without_a_failed_request(run: Callable[..., Any], url: str) -> None:
    app = Says.options(num_replicas=2)
    run(app.bind("old"))
    with Load(url) as load:
        load.wait_for("old", 20)
        run(app.bind("new"))
        before = load.answers["old"]
        load.wait_for("new", 20)
    assert load.failures == []
    assert load.answers["old"] - before < 20  # once it is there, the new version alone answers


def test_a_version_that_does_not_start_leaves_the_old_one_serving(run: Callable[..., Any], url: str) -> None:
    run(Says.bind("good"))
    with Load(url) as load:
        load.wait_for("good", 10)
        with pytest.raises(RuntimeError, match=r"(?s)this version is broken.*keeps serving"):
            run(Says.bind("broken"))
        load.wait_for_more(20)
    assert load.failures == []
    assert set(load.answers) == {"good"}
    status = serve.status().applications["default"]
    assert status.status is ApplicationStatus.DEPLOY_FAILED
    assert status.deployments["Says"].status is DeploymentStatus.DEPLOY_FAILED
    run(Says.bind("better"))
    assert serve.get_app_handle("default").remote().result() == "better"
    assert serve.status().applications["default"].status is ApplicationStatus.RUNNING


def test_the_first_version_may_fail_and_says_why(run: Callable[..., Any]) -> None:
    with pytest.raises(RuntimeError, match="this version is broken"):
        run(Says.bind("broken"))
    assert "this version is broken" in serve.status().applications["default"].message


def test_user_config_reaches_running_replicas(run: Callable[..., Any]) -> None:
    app = Says.options(_internal=True, version="1", user_config={"k": 1})
    handle = run(app.bind("x"))
    replica = handle.replica.remote().result()
    assert handle.remote().result() == "x {'k': 1}"
    handle = run(app.options(user_config={"k": 2}).bind("x"))
    assert handle.remote().result() == "x {'k': 2}"
    assert handle.replica.remote().result() == replica


def test_reconfigure_may_take_the_rank_of_the_replica(run: Callable[..., Any]) -> None:
    @light
    class Ranked:
        def reconfigure(self, config: Any, rank: ReplicaRank) -> None:
            self.told = config, rank.rank, rank.local_rank

        async def __call__(self) -> tuple[Any, int, int]:
            return self.told

    app = Ranked.options(_internal=True, version="1", num_replicas=2)
    handle = run(app.bind())  # without a user_config, too
    assert sorted(handle.broadcast("__call__").results()) == [(None, 0, 0), (None, 1, 1)]
    handle = run(app.options(user_config="new").bind())
    assert sorted(handle.broadcast("__call__").results()) == [("new", 0, 0), ("new", 1, 1)]


def test_the_same_version_keeps_its_replicas_when_it_is_scaled(run: Callable[..., Any]) -> None:
    app = Says.options(_internal=True, version="1")
    handle = run(app.bind("x"))
    replica = handle.replica.remote().result()
    handle = run(app.options(num_replicas=3).bind("x"))
    assert len({handle.replica.remote().result() for _ in range(60)}) == 3
    handle = run(app.options(num_replicas=1).bind("x"))
    assert {handle.replica.remote().result() for _ in range(20)} <= {replica} | {
        handle.replica.remote().result()
    }


def test_a_deployment_that_is_left_out_is_stopped(run: Callable[..., Any]) -> None:
    @light
    class Front:
        def __init__(self, *others: Any) -> None:
            self.others = others

        async def __call__(self) -> list[str]:
            return [await other.remote() for other in self.others]

    run(Front.bind(Says.options(name="a").bind("a"), Says.options(name="b").bind("b")))
    handle = run(Front.bind(Says.options(name="a").bind("a")))
    assert handle.remote().result() == ["a"]
    assert set(serve.status().applications["default"].deployments) == {"Front", "a"}
