"""Placement of replicas: placement groups, gangs, and the limit of replicas per node."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

import skate
from skate import serve
from skate.serve._runtime.ids import CONTROLLER_NAME, NAMESPACE
from skate.serve.config import GangSchedulingConfig
from skate.serve.exceptions import DeploymentUnavailableError
from skate.serve.gang import GangContext
from skate.serve.schema import ApplicationStatus, DeploymentStatus
from skate.util import get_current_placement_group, placement_group_table
from tests.serve.conftest import light
from tests.serve.load import Load
from tests.serve.proxy.test_http import fetch
from tests.serve.waiting import until

pytestmark = pytest.mark.usefixtures("engine")

PAIRS = GangSchedulingConfig(gang_size=2)


@light(gang_scheduling_config=PAIRS, num_replicas=4)
class Member:
    async def __call__(self) -> str:
        await asyncio.sleep(0.002)
        return "here"

    async def who(self) -> tuple[str, int, GangContext | None, Any]:
        context = serve.get_replica_context()
        group = get_current_placement_group()
        return context.replica_tag, os.getpid(), context.gang_context, group and group.id.hex()


def live_groups() -> list[str]:
    return [row["name"] for row in placement_group_table().values() if row["state"] == "CREATED"]


def members(handle: Any, count: int) -> dict[str, tuple[int, GangContext]]:
    """Return the replicas that answer, by their ids: their processes and gangs."""
    found: dict[str, tuple[int, GangContext]] = {}

    def are_all_found() -> bool:
        tag, pid, gang, _ = handle.who.remote().result()
        found[tag] = pid, gang
        return len(found) == count

    until(are_all_found, lambda: found)
    return found


def deployment(name: str = "Member") -> Any:
    return serve.status().applications["default"].deployments[name]


def is_healthy() -> bool:
    overview = deployment()
    return overview.status is DeploymentStatus.HEALTHY and overview.replica_states == {"RUNNING": 4}


def test_replicas_of_a_gang_know_each_other(run: Callable[..., Any]) -> None:
    found = members(run(Member.bind()), 4)
    gangs: dict[str, list[str]] = {}
    for tag, (_, gang) in found.items():
        assert gang.member_replica_ids[gang.rank] == tag
        assert gang.world_size == 2
        gangs.setdefault(gang.gang_id, []).append(tag)
    assert sorted(map(len, gangs.values())) == [2, 2]
    for _, gang in found.values():
        assert sorted(gang.member_replica_ids) == sorted(gangs[gang.gang_id])


def test_a_gang_is_in_one_placement_group_that_goes_with_it(run: Callable[..., Any]) -> None:
    handle = run(Member.bind())
    gangs = {gang.pg_name for _, gang in members(handle, 4).values()}
    assert set(live_groups()) == gangs
    assert handle.who.remote().result()[3] is not None
    serve.delete("default")
    assert live_groups() == []


def test_a_gang_dies_with_any_of_its_replicas_and_others_stay(run: Callable[..., Any]) -> None:
    handle = run(Member.bind())
    before = members(handle, 4)
    pid, gang = next(iter(before.values()))
    os.kill(pid, signal.SIGKILL)
    until(lambda: gang.pg_name not in live_groups())
    until(is_healthy, deployment)
    after = members(handle, 4)
    assert before.keys() & after.keys() == before.keys() - set(gang.member_replica_ids)
    assert len(live_groups()) == 2


def test_another_controller_knows_the_gangs_that_there_are(run: Callable[..., Any]) -> None:
    handle = run(Member.bind())
    before = members(handle, 4)
    controller = skate.get_actor(CONTROLLER_NAME, NAMESPACE)
    os.kill(skate.get(controller.get_pid.remote()), signal.SIGKILL)
    pid, gang = next(iter(before.values()))
    os.kill(pid, signal.SIGKILL)
    until(lambda: gang.pg_name not in live_groups())
    until(is_healthy, deployment)
    after = members(handle, 4)
    assert before.keys() & after.keys() == before.keys() - set(gang.member_replica_ids)
    serve.delete("default")
    assert live_groups() == []


def test_gangs_come_and_go_whole_when_a_deployment_is_scaled(run: Callable[..., Any]) -> None:
    app = Member.options(_internal=True, version="1")
    before = members(run(app.bind()), 4)
    after = members(run(app.options(num_replicas=2).bind()), 2)
    assert after.keys() < before.keys()
    assert len({gang.gang_id for _, gang in after.values()}) == 1
    again = members(run(app.options(num_replicas=6).bind()), 6)
    assert after.keys() < again.keys()


def test_a_new_version_of_gangs_takes_over_without_a_failed_request(
    run: Callable[..., Any], url: str
) -> None:
    before = members(run(Member.bind()), 4)
    with Load(url) as load:
        load.wait_for("here", 20)
        after = members(run(Member.bind()), 4)
        load.wait_for_more(20)
    assert load.failures == []
    assert not before.keys() & after.keys()


def test_gangs_can_be_given_up_and_taken_up(run: Callable[..., Any]) -> None:
    run(Member.bind())
    handle = run(Member.options(gang_scheduling_config=None, num_replicas=3).bind())
    assert {gang for _, gang in members(handle, 3).values()} == {None}
    assert live_groups() == []
    assert (
        len(members(run(Member.options(gang_scheduling_config=GangSchedulingConfig(gang_size=4)).bind()), 4))
        == 4
    )


@skate.remote(num_cpus=0)
class FirstGang:
    """Tells the first gang that asks from all others."""

    def __init__(self) -> None:
        self.first = ""

    def is_it(self, gang: str) -> bool:
        self.first = self.first or gang
        return self.first == gang


def test_one_failed_start_takes_the_gang_with_it_and_counts_once(run: Callable[..., Any]) -> None:
    first = FirstGang.remote()

    @light(
        gang_scheduling_config=PAIRS,
        num_replicas=4,
        max_constructor_retry_count=2,  # one failure of each of two replicas would be too many
    )
    class Late:
        def __init__(self) -> None:
            gang = serve.get_replica_context().gang_context
            assert gang is not None
            if skate.get(first.is_it.remote(gang.gang_id)):
                raise RuntimeError("the first gang does not start")

        async def who(self) -> Any:
            context = serve.get_replica_context()
            return context.replica_tag, os.getpid(), context.gang_context, None

    found = members(run(Late.bind()), 4)
    assert skate.get(first.is_it.remote("")) is False
    assert set(_sizes(found).values()) == {2}


def _sizes(found: dict[str, tuple[int, GangContext]]) -> dict[str, int]:
    gangs = [gang.gang_id for _, gang in found.values()]
    return {gang: gangs.count(gang) for gang in gangs}


def test_replicas_that_need_nothing_make_gangs_too(run: Callable[..., Any]) -> None:
    handle = run(Member.options(ray_actor_options={"num_cpus": 0}, num_replicas=2).bind())
    assert {gang.world_size for _, gang in members(handle, 2).values()} == {2}
    assert live_groups() == []


def test_each_replica_of_a_gang_has_bundles_of_its_own(run: Callable[..., Any]) -> None:
    bundles = [{"CPU": 0.2}, {"CPU": 0.1}]
    handle = run(Member.options(placement_group_bundles=bundles, num_replicas=2).bind())
    assert len(members(handle, 2)) == 2
    (row,) = [row for row in placement_group_table().values() if row["state"] == "CREATED"]
    assert list(row["bundles"].values()) == bundles * 2


def test_a_replica_reserves_its_bundles_and_lets_go_of_them(run: Callable[..., Any]) -> None:
    app = Member.options(gang_scheduling_config=None, num_replicas=2, placement_group_bundles=[{"CPU": 0.1}])
    run(app.bind())
    assert len(live_groups()) == 2
    run(app.options(placement_group_bundles=None).bind())
    assert live_groups() == []


def test_labels_that_no_machine_has_are_told(run: Callable[..., Any]) -> None:
    app = Member.options(
        gang_scheduling_config=None,
        num_replicas=1,
        placement_group_bundles=[{"CPU": 0.1}],
        placement_group_bundle_label_selector=[{"zone": "nowhere"}],
    )
    with pytest.raises(RuntimeError, match="nowhere"):
        run(app.bind())
    assert serve.status().applications["default"].status is ApplicationStatus.DEPLOY_FAILED


class TestReplicasOfOneMachine:
    @pytest.fixture
    def crowd(self, url: str) -> Any:
        app = light(max_replicas_per_node=2, num_replicas=3)(Member.func_or_class).options(name="Member")
        serve._run(app.bind(), _blocking=False)
        until(lambda: deployment().replica_states.get("RUNNING") == 2, deployment)
        return app

    def test_others_wait_and_the_status_says_for_what(self, crowd: Any) -> None:
        overview = deployment()
        assert overview.status is DeploymentStatus.UPDATING
        assert "1 of 3 replicas wait for another machine" in overview.message
        assert "max_replicas_per_node is 2" in overview.message

    def test_it_is_enough_to_raise_the_limit(self, crowd: Any, run: Callable[..., Any]) -> None:
        run(crowd.options(max_replicas_per_node=3).bind())
        assert deployment().replica_states == {"RUNNING": 3}
        assert deployment().message == ""

    def test_a_new_version_makes_room_for_itself(self, crowd: Any, run: Callable[..., Any]) -> None:
        before = members(run(crowd.options(num_replicas=2).bind()), 2)
        after = members(run(crowd.options(num_replicas=2).bind()), 2)
        assert not before.keys() & after.keys()
        assert deployment().replica_states == {"RUNNING": 2}


def test_a_deployment_that_can_never_be_placed_says_so_before_and_at_each_request(
    run: Callable[..., Any], url: str
) -> None:
    options = {"num_cpus": 0.1, "resources": {"unobtainium": 1}}
    scaling = {"min_replicas": 0, "max_replicas": 2}
    handle = run(
        Member.options(
            ray_actor_options=options,
            autoscaling_config=scaling,
            num_replicas=None,
            gang_scheduling_config=None,
        ).bind()
    )
    reason = (
        r"No replica can be placed: each needs .*'unobtainium': 1.*this machine has \{'unobtainium': 0\.0\}"
    )
    assert re.search(reason, deployment().message)
    answer = fetch(url)
    assert answer.status == 503
    assert re.search(reason, answer.text)
    with pytest.raises(DeploymentUnavailableError, match=reason):
        handle.remote().result(timeout_s=30)
