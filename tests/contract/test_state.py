"""The state API: running tasks, existing actors and objects, and what a task waits for."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

import skate
from skate.exceptions import RayActorError
from skate.util.state import (
    get_actor,
    get_node,
    get_objects,
    get_placement_group,
    get_task,
    get_worker,
    list_actors,
    list_jobs,
    list_nodes,
    list_objects,
    list_placement_groups,
    list_tasks,
    list_workers,
    summarize_actors,
    summarize_objects,
    summarize_tasks,
)
from skate.util.state.exception import RayStateApiException
from tests.contract.support import Counter, Signal, eventually

pytestmark = [pytest.mark.usefixtures("engine"), pytest.mark.one_machine]


@skate.remote
def echo(value: Any) -> Any:
    return value


@skate.remote(max_retries=0)
def fail() -> None:
    raise ValueError("for the record")


@skate.remote
def wait_for(signal: Any) -> str:
    skate.get(signal.wait.remote())
    return "waited"


@skate.remote
class Holder:
    def ping(self) -> str:
        return "pong"


def task_of(ref: Any, state: str) -> Any:
    """Return the task behind a ref once it is in a state: records may come a little late."""

    def found() -> Any:
        task = get_task(ref.task_id().hex())
        return task if task is not None and task.state == state else None

    return eventually(found, f"task in state {state}")


@skate.remote(enable_task_events=False)
def unlisted() -> Any:
    return skate.get(echo.options(name="called_by_an_unlisted_task").remote(1))


@skate.remote
class Recorded:
    def usual(self) -> int:
        return 1

    @skate.method(enable_task_events=True)
    def shown(self) -> int:
        return 2

    @skate.method(enable_task_events=False)
    def hidden(self) -> int:
        return 3


def names(actor: Any) -> list[str]:
    return sorted(row.name for row in list_tasks(filters=[("actor_id", "=", actor._actor_id.hex())]))


def test_a_finished_task_is_listed() -> None:
    ref = echo.options(name="listed_echo").remote(1)
    skate.get(ref)
    task = task_of(ref, "FINISHED")
    assert task.name == "listed_echo"
    assert task.func_or_class_name.endswith("echo")
    assert task.type == "NORMAL_TASK"


def test_a_failed_task_is_listed_with_its_error() -> None:
    ref = fail.remote()
    skate.wait([ref])
    task = task_of(ref, "FAILED")
    assert task.error_type == "TASK_EXECUTION_EXCEPTION"
    assert "for the record" in task.error_message


def test_a_running_task_is_listed_with_its_process() -> None:
    signal = Signal.remote()
    ref = wait_for.remote(signal)
    skate.get(signal.wait_for_waiters.remote(1))

    def is_running() -> bool:
        task = get_task(ref.task_id().hex())
        return task is not None and task.state.startswith("RUNNING")

    eventually(is_running)  # Ray lists a task's states some time after they change
    skate.get(signal.send.remote())
    assert skate.get(ref) == "waited"


def test_a_task_that_waits_for_an_argument_says_so() -> None:
    signal = Signal.remote()
    ref = echo.remote(wait_for.remote(signal))
    task_of(ref, "PENDING_ARGS_AVAIL")
    skate.get(signal.send.remote())
    assert skate.get(ref) == "waited"


def test_a_task_that_waits_for_resources_says_so() -> None:
    holder = Holder.options(num_cpus=4).remote()
    skate.get(holder.ping.remote())
    ref = echo.remote(1)
    task_of(ref, "PENDING_NODE_ASSIGNMENT")
    skate.kill(holder)
    assert skate.get(ref) == 1


def test_tasks_are_filtered() -> None:
    ref = echo.options(name="filtered_echo").remote(1)
    skate.get(ref)
    task_of(ref, "FINISHED")
    found = list_tasks(filters=[("name", "=", "filtered_echo"), ("state", "=", "FINISHED")])
    assert [task.task_id for task in found] == [ref.task_id().hex()]
    assert list_tasks(filters=[("name", "=", "nothing_like_it")]) == []


def test_filters_know_unequal() -> None:
    ref = echo.options(name="unequal_echo").remote(1)
    skate.get(ref)
    task_of(ref, "FINISHED")
    assert all(task.name != "unequal_echo" for task in list_tasks(filters=[("name", "!=", "unequal_echo")]))


def test_a_list_stops_at_its_limit() -> None:
    refs = [echo.remote(i) for i in range(5)]
    skate.get(refs)
    task_of(refs[-1], "FINISHED")
    assert len(list_tasks(limit=3, raise_on_missing_output=False)) == 3


def test_an_actor_is_listed_while_it_lives_and_after() -> None:
    counter = Counter.options(name="listed").remote()
    skate.get(counter.read.remote())
    (row,) = list_actors(filters=[("name", "=", "listed"), ("state", "=", "ALIVE")])
    assert row.class_name == "Counter"
    assert row.actor_id == counter._actor_id.hex()
    skate.kill(counter)
    eventually(lambda: get_actor(row.actor_id).state == "DEAD")


def test_an_actor_knows_its_process(engine: str) -> None:
    counter = Counter.remote()
    skate.get(counter.read.remote())
    row = get_actor(counter._actor_id.hex())
    assert (row.pid == os.getpid()) == (engine == "inline")


def test_an_actor_that_waits_for_resources_is_pending() -> None:
    first = Holder.options(num_cpus=4).remote()
    skate.get(first.ping.remote())
    second = Holder.options(num_cpus=4).remote()
    eventually(lambda: (get_actor(second._actor_id.hex()) or first).state == "PENDING_CREATION")
    skate.kill(first)
    skate.get(second.ping.remote())
    skate.kill(second)


def test_actor_calls_are_listed_as_tasks() -> None:
    counter = Counter.remote()
    ref = counter.increment.remote()
    skate.get(ref)
    task = task_of(ref, "FINISHED")
    assert task.type == "ACTOR_TASK"
    assert task.actor_id == counter._actor_id.hex()


def test_an_unknown_id_gives_none() -> None:
    assert get_actor("f" * 32) is None
    assert not get_task("f" * 48)


def test_the_node_is_listed_with_its_resources() -> None:
    (node,) = list_nodes()
    assert node.state == "ALIVE"
    assert node.resources_total["CPU"] == 4
    assert node.node_id == skate.get_runtime_context().get_node_id()
    assert get_node(node.node_id).node_id == node.node_id


def test_this_job_is_listed_as_running() -> None:
    job_id = skate.get_runtime_context().get_job_id()
    assert any(job.job_id == job_id and job.status == "RUNNING" for job in list_jobs())


def test_workers_are_listed_with_their_processes() -> None:
    skate.get(echo.remote(1))
    workers = eventually(lambda: [w for w in list_workers(detail=True) if w.is_alive])
    worker = get_worker(workers[0].worker_id)
    assert worker.worker_id == workers[0].worker_id
    assert worker.pid > 0


def test_a_large_object_is_listed_with_its_size() -> None:
    ref = skate.put(b"x" * 500_000)
    (row,) = [o for o in list_objects(limit=1000) if o.object_id == ref.hex()]
    assert row.object_size >= 500_000
    assert get_objects(ref.hex())[0].object_id == ref.hex()


def test_small_objects_are_listed() -> None:
    actor = Holder.remote()
    refs = [skate.put(1), echo.remote(2), actor.ping.remote()]
    skate.get(refs)
    listed = {row.object_id for row in list_objects(limit=1000)}
    assert {ref.hex() for ref in refs} <= listed


def test_a_placement_group_is_listed_with_its_bundles() -> None:
    group = skate.util.placement_group([{"CPU": 1}], name="listed_group")
    skate.get(group.ready())
    (row,) = list_placement_groups(filters=[("name", "=", "listed_group")])
    assert row.state == "CREATED"
    assert get_placement_group(row.placement_group_id).name == "listed_group"
    skate.util.remove_placement_group(group)


def test_tasks_are_summarised_by_name_and_state() -> None:
    refs = [echo.options(name="summed_echo").remote(i) for i in range(3)]
    skate.get(refs)
    task_of(refs[-1], "FINISHED")

    def counts() -> Any:
        summary = summarize_tasks()["cluster"]["summary"]
        return summary.get("summed_echo", {}).get("state_counts", {})

    eventually(lambda: counts() == {"FINISHED": 3})


def test_actors_are_summarised_by_class() -> None:
    counter = Counter.remote()
    skate.get(counter.read.remote())
    summary = summarize_actors()["cluster"]["summary"]
    assert summary["Counter"]["state_counts"]["ALIVE"] >= 1


def test_objects_are_summarised() -> None:
    ref = skate.put(b"x" * 500_000)
    assert summarize_objects()["cluster"]["total_objects"] >= 1
    del ref


def test_an_unknown_filter_is_refused() -> None:
    with pytest.raises((ValueError, RayStateApiException), match="colour"):
        list_tasks(filters=[("colour", "=", "blue")])


def test_a_filter_with_an_unknown_comparison_is_refused() -> None:
    with pytest.raises(ValueError, match="<"):
        list_tasks(filters=[("name", "<", "a")])


def test_rows_can_be_read_as_dictionaries() -> None:
    (node,) = list_nodes()
    assert node["state"] == node.state == "ALIVE"


def test_the_timeline_has_an_event_for_a_task() -> None:
    ref = echo.remote(1)
    skate.get(ref)
    task_of(ref, "FINISHED")

    def events() -> list[Any]:
        task_id = ref.task_id().hex()
        return [event for event in skate.timeline() if event.get("args", {}).get("task_id") == task_id]

    (event,) = eventually(events)
    assert event["ph"] == "X"
    assert event["dur"] >= 0


def test_why_names_the_resources_a_task_waits_for() -> None:
    from skate.util.state import why

    holder = Holder.options(num_cpus=4, name="greedy").remote()
    skate.get(holder.ping.remote())
    ref = echo.remote(1)
    eventually(lambda: "CPU" in why(ref))
    assert "greedy" in why(ref) or "Holder" in why(ref)
    skate.kill(holder)
    assert skate.get(ref) == 1


def test_why_names_the_argument_a_task_waits_for() -> None:
    from skate.util.state import why

    signal = Signal.remote()
    ref = echo.remote(wait_for.remote(signal))
    skate.get(signal.wait_for_waiters.remote(1))
    assert "wait_for" in why(ref)
    skate.get(signal.send.remote())
    assert skate.get(ref) == "waited"


def test_why_says_that_a_running_task_runs() -> None:
    from skate.util.state import why

    signal = Signal.remote()
    ref = wait_for.remote(signal)
    skate.get(signal.wait_for_waiters.remote(1))
    eventually(lambda: "run" in why(ref).lower())  # Ray hears of it a little later
    skate.get(signal.send.remote())
    skate.get(ref)


def test_why_says_that_a_value_is_there() -> None:
    from skate.util.state import why

    assert "object" in why(skate.put(1))


@skate.remote(num_cpus=0)
class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Named({self.name})"


@skate.remote(num_cpus=0)
class Leaving:
    def leave(self) -> None:
        skate.actor.exit_actor()


def test_an_actor_is_listed_with_its_repr() -> None:
    named, plain = Named.remote("a"), Holder.remote()
    skate.get(plain.ping.remote())
    eventually(lambda: (found := get_actor(named._actor_id.hex())) and found.repr_name == "Named(a)")
    assert get_actor(plain._actor_id.hex()).repr_name == ""


def test_the_call_that_ends_its_actor_is_listed_as_finished() -> None:
    with pytest.raises(RayActorError):
        skate.get(Leaving.remote().leave.remote())

    def ended() -> Any:
        rows = list_tasks(filters=[("name", "=", "Leaving.leave")])
        return rows and rows[-1].state != "RUNNING" and rows

    assert {row.state for row in eventually(ended)} == {"FINISHED"}


def test_a_task_without_events_is_not_listed() -> None:
    hidden, listed = unlisted.remote(), unlisted.options(enable_task_events=True).remote()
    assert skate.get([hidden, listed]) == [1, 1]
    assert task_of(listed, "FINISHED").name == "unlisted"
    assert get_task(hidden.task_id().hex()) is None
    assert len(list_tasks(filters=[("name", "=", "called_by_an_unlisted_task")])) == 2


def test_an_actor_decides_for_its_methods_unless_they_do() -> None:
    listed, unlisted = Recorded.remote(), Recorded.options(enable_task_events=False).remote()
    for each in (listed, unlisted):
        calls = [
            each.usual,
            each.shown,
            each.hidden,
            each.hidden.options(enable_task_events=True, name="asked"),
        ]
        assert skate.get([call.remote() for call in calls]) == [1, 2, 3, 3]
    eventually(lambda: len(names(listed)) == 4)
    assert names(listed) == ["Recorded.__init__", "Recorded.shown", "Recorded.usual", "asked"]
    eventually(lambda: len(names(unlisted)) == 2)
    assert names(unlisted) == ["Recorded.shown", "asked"]


@skate.remote
class Quitter:
    def ping(self) -> str:
        return "pong"

    def leave(self, code: int) -> None:
        sys.exit(code)


@pytest.mark.parametrize(("code", "state", "error"), [(0, "FINISHED", None), (3, "FAILED", "ACTOR_DIED")])
def test_calls_of_an_actor_are_listed_after_one_has_ended_its_process(
    code: int, state: str, error: str | None
) -> None:
    actor = Quitter.remote()
    assert skate.get(actor.ping.remote()) == "pong"
    ref = actor.leave.remote(code)
    with pytest.raises(RayActorError):
        skate.get(ref)
    assert task_of(ref, state).error_type == error
    assert names(actor) == ["Quitter.__init__", "Quitter.leave", "Quitter.ping"]
