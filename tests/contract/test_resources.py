"""Resources: CPUs, GPUs, custom ones, memory, labels, and requests that can never be met."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import skate
from skate.exceptions import ActorUnschedulableError, TaskUnschedulableError
from skate.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from tests.contract.support import Signal, eventually
from tests.plugins.sessions import Start

pytestmark = [pytest.mark.usefixtures("engine"), pytest.mark.one_machine]

# Kinds of accelerators that are plain resources: the variable that shows a process its devices, and how it names them.
ACCELERATORS = {
    "RBLN": ("RBLN_DEVICES", ""),
    "FURIOSA": ("FURIOSA_DEVICES", "npu:"),
    "MBLT": ("QBRUNTIME_VISIBLE_DEVICES", ""),
    "TTNPU": ("TT_VISIBLE_DEVICES", ""),
}
# A machine for several tests: on Ray, each other one is a cluster more.
EQUIPPED: dict[str, Any] = {
    "num_gpus": 1,
    "labels": {"zone": "north"},
    "resources": {"license": 1, **dict.fromkeys(ACCELERATORS, 2)},
}


@skate.remote
class Holder:
    """Holds its resources as long as it lives."""

    def ping(self) -> str:
        return "pong"

    def gpus(self) -> list[Any]:
        return skate.get_gpu_ids()

    def visible(self) -> str | None:
        return os.environ.get("CUDA_VISIBLE_DEVICES")


@skate.remote
def assigned() -> dict[str, float]:
    return skate.get_runtime_context().get_assigned_resources()


def test_cluster_resources_show_what_init_was_given() -> None:
    resources = skate.cluster_resources()
    assert resources["CPU"] == 4
    assert resources["memory"] > 0
    assert resources["object_store_memory"] > 0


def test_available_resources_go_down_while_an_actor_holds_some() -> None:
    eventually(lambda: skate.available_resources().get("CPU") == 4)
    holder = Holder.options(num_cpus=3).remote()
    skate.get(holder.ping.remote())
    eventually(lambda: skate.available_resources().get("CPU") == 1)
    skate.kill(holder)
    eventually(lambda: skate.available_resources().get("CPU") == 4)


def test_a_task_holds_one_cpu_by_default() -> None:
    assert skate.get(assigned.remote()) == {"CPU": 1.0}


def test_a_task_holds_what_it_asks_for() -> None:
    assert skate.get(assigned.options(num_cpus=2).remote())["CPU"] == 2


def test_a_task_may_hold_no_cpu() -> None:
    assert skate.get(assigned.options(num_cpus=0).remote()).get("CPU", 0) == 0


def test_a_task_without_cpu_runs_on_a_full_machine() -> None:
    holder = Holder.options(num_cpus=4).remote()
    skate.get(holder.ping.remote())
    skate.get(assigned.options(num_cpus=0).remote())
    skate.kill(holder)


def test_cpus_may_be_fractions() -> None:
    holders = [Holder.options(num_cpus=0.5).remote() for _ in range(8)]
    assert skate.get([holder.ping.remote() for holder in holders]) == ["pong"] * 8
    eventually(lambda: skate.available_resources().get("CPU", 0) == 0)
    for holder in holders:
        skate.kill(holder)


def test_actors_hold_no_cpu_by_default() -> None:
    holders = [Holder.remote() for _ in range(6)]
    assert skate.get([holder.ping.remote() for holder in holders]) == ["pong"] * 6


def test_a_task_waits_until_its_resources_are_free() -> None:
    holder = Holder.options(num_cpus=4).remote()
    skate.get(holder.ping.remote())
    ref = assigned.options(num_cpus=4).remote()
    assert skate.wait([ref], timeout=0) == ([], [ref])
    skate.kill(holder)
    assert skate.get(ref)["CPU"] == 4


def test_an_actor_waits_until_its_resources_are_free() -> None:
    first = Holder.options(num_cpus=4).remote()
    skate.get(first.ping.remote())
    second = Holder.options(num_cpus=4).remote()
    ref = second.ping.remote()
    assert skate.wait([ref], timeout=0) == ([], [ref])
    skate.kill(first)
    assert skate.get(ref) == "pong"
    skate.kill(second)


def test_tasks_never_hold_more_than_there_is(tmp_path: Path) -> None:
    @skate.remote(num_cpus=2)
    def visit(name: str) -> int:
        # No get in here: a task that blocks gives its CPUs back.
        (tmp_path / name).touch()
        inside = len(list(tmp_path.iterdir()))
        (tmp_path / name).unlink()
        return inside

    assert max(skate.get([visit.remote(str(i)) for i in range(50)])) <= 2


def test_a_failed_task_gives_its_resources_back() -> None:
    @skate.remote(num_cpus=4, max_retries=0)
    def fail() -> None:
        raise ValueError("failed")

    for _ in range(3):
        with pytest.raises(ValueError, match="failed"):
            skate.get(fail.remote())
    assert skate.get(assigned.options(num_cpus=4).remote())["CPU"] == 4


def test_a_crashed_task_gives_its_resources_back() -> None:
    @skate.remote(num_cpus=4, max_retries=0)
    def crash() -> None:
        os._exit(1)

    with pytest.raises(skate.exceptions.WorkerCrashedError):
        skate.get(crash.remote())
    assert skate.get(assigned.options(num_cpus=4).remote())["CPU"] == 4


def test_nodes_shows_one_living_node() -> None:
    (node,) = skate.nodes()
    assert node["Alive"] is True
    assert node["Resources"]["CPU"] == 4
    assert node["NodeID"] == skate.get_runtime_context().get_node_id()


def test_a_task_that_can_never_run_says_what_was_asked_and_what_exists() -> None:
    with pytest.raises(TaskUnschedulableError, match=r"(?s)1000.*4"):
        skate.get(assigned.options(num_cpus=1000).remote())


def test_an_actor_that_can_never_run_says_what_was_asked_and_what_exists() -> None:
    with pytest.raises(ActorUnschedulableError, match=r"(?s)1000.*4"):
        skate.get(Holder.options(num_cpus=1000).remote().ping.remote())


def test_a_custom_resource_that_nobody_has_is_named() -> None:
    with pytest.raises(TaskUnschedulableError, match="unobtainium"):
        skate.get(assigned.options(resources={"unobtainium": 1}).remote())


def test_a_gpu_on_a_machine_without_gpu_can_never_be_had(fresh: Start) -> None:
    fresh(num_gpus=0)
    with pytest.raises(TaskUnschedulableError, match="GPU"):
        skate.get(assigned.options(num_gpus=1).remote())


def test_more_memory_than_there_is_can_never_be_had() -> None:
    with pytest.raises(TaskUnschedulableError, match="memory"):
        skate.get(assigned.options(memory=2**60).remote())


def test_an_accelerator_type_that_nobody_has_is_named() -> None:
    with pytest.raises(TaskUnschedulableError, match="H100"):
        skate.get(assigned.options(accelerator_type="H100").remote())


def test_a_label_that_no_node_has_is_named() -> None:
    with pytest.raises(TaskUnschedulableError, match="zone"):
        skate.get(assigned.options(label_selector={"zone": "nowhere"}).remote())


def test_memory_is_a_resource() -> None:
    total = skate.cluster_resources()["memory"]
    holder = Holder.options(memory=int(total)).remote()
    skate.get(holder.ping.remote())
    ref = assigned.options(memory=1).remote()
    assert skate.wait([ref], timeout=0) == ([], [ref])
    skate.kill(holder)
    skate.get(ref)


def test_gpus_are_handed_out_one_by_one(fresh: Start) -> None:
    fresh(num_gpus=3)
    holders = [Holder.options(num_gpus=1).remote() for _ in range(3)]
    ids = skate.get([holder.gpus.remote() for holder in holders])
    assert sorted(int(i) for (i,) in ids) == [0, 1, 2]
    visible = skate.get([holder.visible.remote() for holder in holders])
    assert visible == [str(i) for (i,) in ids]


def test_a_task_with_several_gpus_sees_them_all(fresh: Start) -> None:
    fresh(num_gpus=3)

    @skate.remote(num_gpus=2)
    def visible() -> str:
        return os.environ["CUDA_VISIBLE_DEVICES"]

    assert len(skate.get(visible.remote()).split(",")) == 2


def test_custom_resources_limit_who_runs(fresh: Start) -> None:
    fresh(**EQUIPPED)
    assert skate.cluster_resources()["license"] == 1
    holder = Holder.options(resources={"license": 1}).remote()
    skate.get(holder.ping.remote())
    ref = assigned.options(resources={"license": 0.5}).remote()
    assert skate.wait([ref], timeout=0) == ([], [ref])
    skate.kill(holder)
    assert skate.get(ref)["license"] == 0.5


def test_a_gpu_may_be_shared_in_fractions(fresh: Start) -> None:
    fresh(**EQUIPPED)
    holders = [Holder.options(num_gpus=0.5).remote() for _ in range(2)]
    assert skate.get([holder.visible.remote() for holder in holders]) == ["0", "0"]


def test_the_accelerator_ids_are_in_the_runtime_context(fresh: Start) -> None:
    fresh(**EQUIPPED)

    @skate.remote(num_gpus=1)
    def ids() -> dict[str, list[str]]:
        return skate.get_runtime_context().get_accelerator_ids()

    assert skate.get(ids.remote())["GPU"] == ["0"]


def test_accelerators_named_as_resources_are_handed_out_one_by_one(fresh: Start) -> None:
    fresh(**EQUIPPED)

    @skate.remote(num_cpus=0)
    class Owner:
        def devices(self, kind: str, variable: str) -> tuple[list[str], str]:
            return skate.get_runtime_context().get_accelerator_ids()[kind], os.environ[variable]

    for kind, (variable, prefix) in ACCELERATORS.items():
        owners = [Owner.options(resources={kind: 1}).remote() for _ in range(2)]
        found = skate.get([owner.devices.remote(kind, variable) for owner in owners])
        assert sorted(found) == [(["0"], f"{prefix}0"), (["1"], f"{prefix}1")]


@pytest.mark.parametrize("kind", ["HPU", "RBLN", "FURIOSA", "MBLT", "TTNPU"])
def test_a_device_that_processes_cannot_share_is_not_split(kind: str) -> None:
    with pytest.raises(ValueError, match=rf"{kind} resource quantity.*0\.5"):
        assigned.options(resources={kind: 0.5}).remote()


def test_the_gpu_of_a_task_is_free_for_the_next(fresh: Start) -> None:
    fresh(**EQUIPPED)

    @skate.remote(num_gpus=1)
    def ids() -> list[Any]:
        return skate.get_gpu_ids()

    for _ in range(3):
        assert [int(i) for i in skate.get(ids.remote())] == [0]


def test_labels_of_init_are_labels_of_the_node(fresh: Start) -> None:
    fresh(**EQUIPPED)
    (node,) = skate.nodes()
    assert node["Labels"]["zone"] == "north"

    @skate.remote
    def labels() -> dict[str, str]:
        return skate.get_runtime_context().get_node_labels()

    assert skate.get(labels.remote())["zone"] == "north"


def test_a_label_selector_that_fits_lets_the_task_run(fresh: Start) -> None:
    fresh(**EQUIPPED)
    for wanted in ("north", "in(north, south)", "!west", "!in(west, east)"):
        skate.get(assigned.options(label_selector={"zone": wanted}).remote())


def test_node_affinity_to_this_node_runs_here() -> None:
    strategy = NodeAffinitySchedulingStrategy(skate.get_runtime_context().get_node_id(), soft=False)
    assert skate.get(assigned.options(scheduling_strategy=strategy).remote()) == {"CPU": 1.0}


def test_hard_node_affinity_to_an_unknown_node_fails() -> None:
    strategy = NodeAffinitySchedulingStrategy("a1" * 28, soft=False)
    with pytest.raises(TaskUnschedulableError):
        skate.get(assigned.options(scheduling_strategy=strategy).remote())


def test_soft_node_affinity_to_an_unknown_node_runs_anywhere() -> None:
    strategy = NodeAffinitySchedulingStrategy("a1" * 28, soft=True)
    assert skate.get(assigned.options(scheduling_strategy=strategy).remote()) == {"CPU": 1.0}


@pytest.mark.parametrize("strategy", ["DEFAULT", "SPREAD"])
def test_a_named_scheduling_strategy_runs_the_task(strategy: str) -> None:
    assert skate.get(assigned.options(scheduling_strategy=strategy).remote()) == {"CPU": 1.0}


def test_a_small_task_runs_while_a_large_one_waits() -> None:
    holder = Holder.options(num_cpus=2).remote()
    skate.get(holder.ping.remote())
    large = assigned.options(num_cpus=4).remote()
    small = assigned.options(num_cpus=1).remote()
    assert skate.get(small) == {"CPU": 1.0}
    skate.kill(holder)
    assert skate.get(large)["CPU"] == 4


def test_a_task_blocked_in_get_takes_its_cpus_again_afterwards() -> None:
    signal = Signal.remote()

    @skate.remote(num_cpus=4)
    def blocked() -> dict[str, float]:
        skate.get(signal.wait.remote())
        return skate.get_runtime_context().get_assigned_resources()

    ref = blocked.remote()
    skate.get(signal.wait_for_waiters.remote(1))
    assert skate.get(assigned.options(num_cpus=4).remote())["CPU"] == 4
    skate.get(signal.send.remote())
    assert skate.get(ref)["CPU"] == 4
