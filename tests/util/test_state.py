from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import skate
from skate.exceptions import RayError, RayTaskError, RuntimeEnvSetupError
from skate.util import state
from skate.util.placement_group import placement_group, remove_placement_group
from skate.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from skate.util.state.common import (
    ActorState,
    Humanify,
    ListApiOptions,
    RuntimeEnvState,
    StateResource,
    TaskState,
    WorkerState,
)
from skate.util.state.exception import InvalidQueryError, RayStateApiException
from tests.contract.support import Signal, eventually


@pytest.fixture
def session(no_session: None) -> Iterator[None]:
    """A session of the test's own, so that it knows everything that is there."""
    skate.init(num_cpus=2, engine="local")
    yield
    skate.shutdown()


@skate.remote
def wait_for(signal: Any, *_: Any) -> int:
    skate.get(signal.wait.remote())
    return 1


@skate.remote
def quick() -> str:
    print("quick was here")
    return "done"


@skate.remote
class Worker:
    def pid(self) -> int:
        return os.getpid()

    def say(self, text: str) -> None:
        print(text)


# ------------------------------------------------------------ tasks


def test_tasks_are_listed_with_what_they_do(session: None) -> None:
    signal = Signal.remote()
    blocked = [wait_for.options(name=f"task-{i}", num_cpus=1).remote(signal) for i in range(2)]
    skate.get(signal.wait_for_waiters.remote(2))
    dependent = wait_for.options(name="dependent").remote(signal, blocked[0])
    rows = {row.name: row for row in state.list_tasks(filters=[("type", "=", "NORMAL_TASK")])}
    assert {rows["task-0"].state, rows["task-1"].state} == {"RUNNING"}
    assert rows["dependent"].state == "PENDING_ARGS_AVAIL"
    assert rows["task-0"].node_id == skate.get_runtime_context().get_node_id()
    assert rows["dependent"].node_id is None
    assert rows["task-0"].actor_id is None
    assert rows["task-0"].job_id == skate.get_runtime_context().get_job_id()
    assert rows["task-0"].func_or_class_name == "wait_for"
    skate.get(signal.send.remote())
    assert skate.get([dependent, *blocked]) == [1, 1, 1]
    assert {row.state for row in state.list_tasks()} == {"FINISHED"}


def test_a_task_is_found_by_its_id_and_by_its_reference(session: None) -> None:
    reference = quick.remote()
    skate.get(reference)
    (listed,) = state.list_tasks(detail=True)
    assert state.get_task(reference) == state.get_task(listed.task_id) == listed
    assert listed.start_time_ms is not None
    assert listed.end_time_ms >= listed.start_time_ms >= listed.creation_time_ms
    assert listed.required_resources == {"CPU": 1.0}
    assert state.get_task("00" * 24) is None


def test_every_attempt_of_a_task_is_a_row(session: None) -> None:
    @skate.remote(max_retries=2, retry_exceptions=True)
    def fails() -> None:
        raise ValueError("on purpose")

    reference = fails.remote()
    with pytest.raises(RayTaskError):
        skate.get(reference)
    rows = state.get_task(reference)
    assert isinstance(rows, list)
    assert [row.attempt_number for row in rows] == [2, 1, 0]
    assert {row.state for row in rows} == {"FAILED"}
    assert {row.error_type for row in rows} == {"TASK_EXECUTION_EXCEPTION"}
    assert all("raise ValueError" in (row.error_message or "") for row in rows)


def test_the_row_of_a_failed_call_has_the_end_of_its_error(session: None) -> None:
    @skate.remote(num_cpus=0)
    class Broken:
        def fail(self, size: int) -> None:
            raise ValueError("x" * size + " on purpose")

    broken = Broken.remote()
    for size in (1, 1_000_000):
        with pytest.raises(RayTaskError):
            skate.get(broken.fail.remote(size))
    rows = [row for row in state.list_tasks(detail=True) if row.name == "Broken.fail"]
    assert [row.error_type for row in rows] == ["TASK_EXECUTION_EXCEPTION"] * 2
    assert all(str(row.error_message).endswith(" on purpose") for row in rows)
    assert all(len(str(row.error_message)) < 3000 for row in rows)


def test_a_task_that_did_not_run_says_why_it_failed(session: None) -> None:
    @skate.remote
    def fails(*_: Any) -> None:
        raise ValueError("on purpose")

    @skate.remote
    def ends_its_process() -> None:
        os._exit(3)

    argument = fails.remote()
    failed = [fails.options(name="after").remote(argument), ends_its_process.options(max_retries=0).remote()]
    for reference in failed:
        with pytest.raises(RayError):
            skate.get(reference)
    after, crashed = map(state.get_task, failed)
    assert isinstance(after, TaskState)
    assert isinstance(crashed, TaskState)
    assert after.error_type == "TASK_EXECUTION_EXCEPTION"
    assert argument.hex() in str(after.error_message)
    assert crashed.error_type == "WORKER_DIED"
    assert "3" in str(crashed.error_message)


def test_a_child_knows_its_parent(session: None) -> None:
    @skate.remote
    def parent() -> None:
        skate.get(quick.remote())

    reference = parent.remote()
    skate.get(reference)
    (child,) = state.list_tasks(filters=[("name", "=", "quick")])
    assert child.parent_task_id == reference.task_id().hex()


def test_calls_of_an_actor_are_tasks_too(session: None) -> None:
    actor = Worker.remote()
    pid = skate.get(actor.pid.remote())
    rows = state.list_tasks(filters=[("actor_id", "=", actor._actor_id.hex())])
    assert [(row.name, row.type, row.state, row.worker_pid) for row in rows] == [
        ("Worker.__init__", "ACTOR_CREATION_TASK", "FINISHED", pid),
        ("Worker.pid", "ACTOR_TASK", "FINISHED", pid),
    ]


def test_tasks_are_counted_by_name_and_state(session: None) -> None:
    skate.get([quick.remote(), quick.remote(), quick.options(name="other").remote()])
    found = state.summarize_tasks()["cluster"]
    assert found["summary"]["quick"] == {
        "func_or_class_name": "quick",
        "type": "NORMAL_TASK",
        "state_counts": {"FINISHED": 2},
    }
    assert found["summary"]["other"]["func_or_class_name"] == "quick"
    assert (found["total_tasks"], found["total_actor_tasks"], found["total_actor_scheduled"]) == (3, 0, 0)


# ------------------------------------------------------------ actors


def test_actors_are_listed_while_they_live_and_after(session: None) -> None:
    alive, dead = Worker.options(name="a", namespace="n").remote(), Worker.remote()
    pids = skate.get([alive.pid.remote(), dead.pid.remote()])
    skate.kill(dead)
    eventually(lambda: state.list_actors(filters=[("state", "=", "DEAD")]))
    (row,) = state.list_actors(filters=[("state", "!=", "dead")])
    assert (row.pid, row.name, row.ray_namespace, row.class_name) == (pids[0], "a", "n", "Worker")
    (row,) = state.list_actors(filters=[("state", "=", "DEAD")], detail=True)
    assert row.pid == pids[1]
    assert row.death_cause is not None
    assert state.get_actor(dead._actor_id.hex()) == row
    assert state.summarize_actors()["cluster"]["summary"]["Worker"]["state_counts"] == {"ALIVE": 1, "DEAD": 1}


def test_a_row_is_read_by_attribute_and_by_item(session: None) -> None:
    actor = Worker.remote()
    skate.get(actor.pid.remote())
    (row,) = state.list_actors()
    assert isinstance(row, ActorState)
    assert row["actor_id"] == row.actor_id == row.get("actor_id") == actor._actor_id.hex()
    assert row.asdict()["state"] == "ALIVE"
    assert row.get("nothing", 7) == 7
    with pytest.raises(KeyError):
        row["nothing"]


def test_details_are_only_there_when_asked_for(session: None) -> None:
    actor = Worker.remote()
    skate.get(actor.pid.remote())
    assert state.list_actors()[0].required_resources is None
    assert state.list_actors(detail=True)[0].required_resources == {}


# ------------------------------------------------------------ objects, workers, and the rest


def test_objects_are_listed_with_who_refers_to_them(session: None) -> None:
    reference = skate.put(b"x" * 1_000_000)
    (row,) = state.get_objects(reference.hex())
    assert row.object_size >= 1_000_000
    assert (row.pid, row.type, row.reference_type) == (os.getpid(), "DRIVER", "LOCAL_REFERENCE")
    found = state.summarize_objects()["cluster"]
    assert found["total_objects"] == 1
    assert 0.9 < found["total_size_mb"] < 1.1
    del reference
    skate.get(quick.remote())
    eventually(lambda: not [row for row in state.list_objects() if row.object_size > 1000])


def test_an_object_that_is_being_made_shows_the_state_of_its_task(session: None) -> None:
    signal = Signal.remote()
    reference = wait_for.remote(signal)
    skate.get(signal.wait_for_waiters.remote(1))
    (row,) = state.get_objects(reference.hex())
    assert (row.task_status, row.object_size) == ("RUNNING", -1)
    skate.get(signal.send.remote())


def test_workers_are_listed_while_they_live_and_after(session: None) -> None:
    actor = Worker.remote()
    pid = skate.get(actor.pid.remote())
    (row,) = state.list_workers(filters=[("pid", "=", pid)], detail=True)
    assert isinstance(row, WorkerState)
    assert (row.is_alive, row.worker_type, row.exit_type, row.end_time_ms) == (True, "WORKER", None, 0)
    assert state.get_worker(row.worker_id) == row
    (driver,) = state.list_workers(filters=[("worker_type", "=", "DRIVER")])
    assert driver.pid == os.getpid()
    os.kill(pid, 9)
    (row,) = eventually(
        lambda: state.list_workers(filters=[("pid", "=", pid), ("is_alive", "=", "false")], detail=True)
    )
    assert row.exit_type == "SYSTEM_ERROR"
    assert row.end_time_ms >= row.start_time_ms
    everyone = state.list_workers()
    assert len(everyone) == sum(
        len(state.list_workers(filters=[("is_alive", "=", v)])) for v in ("1", "False")
    )


def exit_of(pid: int) -> tuple[str | None, str]:
    """Wait until a worker has ended; return how the state API describes that."""
    (row,) = eventually(
        lambda: state.list_workers(filters=[("pid", "=", pid), ("is_alive", "=", "false")], detail=True)
    )
    return row.exit_type, row.exit_detail or ""


@skate.remote(num_cpus=0, max_restarts=0)
class Mortal:
    def pid(self) -> int:
        return os.getpid()

    def leave(self) -> None:
        skate.actor.exit_actor()

    def exit(self, code: int) -> None:
        sys.exit(code)


@pytest.mark.parametrize(
    ("end", "kind", "words"),
    [
        (lambda actor, pid: os.kill(pid, 9), "SYSTEM_ERROR", "OOM"),
        (lambda actor, pid: os.kill(pid, 15), "SYSTEM_ERROR", "SIGTERM"),
        (lambda actor, pid: actor.exit.remote(4), "SYSTEM_ERROR", "exit code 4"),
        (lambda actor, pid: actor.exit.remote(0), "INTENDED_USER_EXIT", "exit code 0"),
        (lambda actor, pid: actor.leave.remote(), "INTENDED_USER_EXIT", "exit_actor"),
        (lambda actor, pid: skate.kill(actor), "INTENDED_SYSTEM_EXIT", "ray.kill"),
    ],
)
def test_the_end_of_an_actor_is_explained(session: None, end: Any, kind: str, words: str) -> None:
    actor = Mortal.remote()
    pid = skate.get(actor.pid.remote())
    end(actor, pid)
    found, detail = exit_of(pid)
    assert (found, words in detail) == (kind, True), detail


def test_the_end_of_a_worker_whose_task_was_cancelled_by_force_is_explained(session: None) -> None:
    signal = Signal.remote()
    reference = wait_for.remote(signal)
    skate.get(signal.wait_for_waiters.remote(1))
    (row,) = state.list_tasks(filters=[("name", "=", "wait_for")], detail=True)
    skate.cancel(reference, force=True)
    kind, detail = exit_of(row.worker_pid)
    assert (kind, "ray.cancel" in detail) == ("INTENDED_USER_EXIT", True)


def test_the_end_of_an_actor_whose_group_was_removed_is_explained(session: None) -> None:
    group = placement_group([{"CPU": 1}])
    actor = Mortal.options(
        num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(placement_group=group)
    ).remote()
    pid = skate.get(actor.pid.remote())
    remove_placement_group(group)
    kind, detail = exit_of(pid)
    assert (kind, "placement group was removed" in detail) == ("INTENDED_SYSTEM_EXIT", True)


def test_tasks_of_threads_belong_to_the_task_or_actor_that_started_them(session: None) -> None:
    def quickly_in_a_thread() -> None:
        thread = threading.Thread(target=lambda: skate.get(quick.remote()))
        thread.start()
        thread.join()

    @skate.remote
    def task() -> None:
        quickly_in_a_thread()

    @skate.remote
    class Actor:
        def call(self) -> None:
            quickly_in_a_thread()

    reference = task.remote()
    skate.get(reference)
    (child,) = eventually(lambda: state.list_tasks(filters=[("name", "=", "quick")], detail=True))
    assert child.parent_task_id == reference.task_id().hex()
    actor, threaded = Actor.remote(), Actor.options(max_concurrency=2).remote()
    call = actor.call.remote()
    skate.get([call, threaded.call.remote()])
    creations = {row.task_id for row in state.list_tasks(filters=[("name", "=", "Actor.__init__")])}
    parents = {row.parent_task_id for row in state.list_tasks(filters=[("name", "=", "quick")])}
    assert {reference.task_id().hex(), call.task_id().hex()} < parents
    assert len(parents & creations) == 1


def test_the_node_is_listed(session: None) -> None:
    (node,) = state.list_nodes(detail=True)
    assert node.node_id == skate.get_runtime_context().get_node_id()
    assert node.is_head_node
    assert node.resources_total["CPU"] == 2
    assert state.get_node(node.node_id) == node


def test_the_driver_is_a_job(session: None) -> None:
    (job,) = state.list_jobs(detail=True)
    assert job.job_id == skate.get_runtime_context().get_job_id()
    assert (job.type, job.status) == ("DRIVER", "RUNNING")
    assert job.driver_info["pid"] == str(os.getpid())
    assert state.get_job(job.job_id) == job


def test_placement_groups_are_listed(session: None) -> None:
    group = placement_group([{"CPU": 1}], name="g")
    assert group.wait(10)
    (row,) = state.list_placement_groups(detail=True)
    assert (row.placement_group_id, row.name, row.state) == (group.id.hex(), "g", "CREATED")
    assert row.bundles[0]["unit_resources"] == {"CPU": 1}
    assert state.get_placement_group(group.id.hex()) == row
    remove_placement_group(group)


def test_there_are_no_cluster_events(session: None) -> None:
    assert state.list_cluster_events() == []


def test_runtime_environments_are_listed(session: None) -> None:
    actor = Worker.options(runtime_env={"env_vars": {"A": "1"}}).remote()
    skate.get(actor.pid.remote())
    (row,) = state.list_runtime_envs(detail=True)
    assert row.runtime_env["env_vars"] == {"A": "1"}
    assert row.success
    assert row.ref_cnt == 1


def test_a_runtime_environment_that_could_not_be_made_is_listed_with_its_error(session: None) -> None:
    with pytest.raises(RuntimeEnvSetupError):
        skate.get(quick.options(runtime_env={"working_dir": "file:///nowhere.zip"}).remote())
    (row,) = state.list_runtime_envs(detail=True, filters=[("success", "=", "false")])
    assert row.error
    assert "nowhere" in row.error


# ------------------------------------------------------------ filters and limits


def test_filters_do_not_mind_the_case_of_text_and_columns(session: None) -> None:
    skate.get(quick.remote())
    assert (
        state.list_tasks(filters=[("NAME", "=", "QUICK"), ("state", "=", "finished")]) == state.list_tasks()
    )


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (("state", ">", "DEAD"), "'!=' are supported"),
        (("stat", "=", "DEAD"), "Did you mean 'state'"),
        (("pid", "=", "1.5"), "an integer"),
        (("state", "DEAD"), "A filter must be"),
        (("state", "=", "ALIV"), "Did you mean 'ALIVE'"),
    ],
)
def test_a_filter_that_cannot_be_right_is_refused(session: None, bad: Any, words: str) -> None:
    with pytest.raises(InvalidQueryError, match=words) as caught:
        state.list_actors(filters=[bad])
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, RayStateApiException)


def test_a_true_or_false_column_needs_such_a_value(session: None) -> None:
    with pytest.raises(ValueError, match="true or false"):
        state.list_workers(filters=[("is_alive", "=", "maybe")])


def test_a_limit_is_kept_and_explained(session: None) -> None:
    skate.get([quick.remote() for _ in range(5)])
    assert len(state.list_tasks(limit=3)) == 3
    with pytest.warns(UserWarning, match="3 of 5 tasks"):
        state.list_tasks(limit=3, _explain=True)
    for bad in (0, 10_001):
        with pytest.raises(RayStateApiException, match="limit"):
            state.list_tasks(limit=bad)


def test_the_client_lists_gets_and_summarizes(session: None) -> None:
    skate.get(quick.remote())
    client = state.StateApiClient()
    options = ListApiOptions(filters=[("name", "=", "quick")])
    (row,) = client.list(StateResource.TASKS, options, True)
    assert client.get(StateResource.TASKS, row.task_id).task_id == row.task_id
    assert client.get_address() == skate.get_runtime_context().get_session_dir()
    with pytest.raises(InvalidQueryError, match="looked up by id"):
        client.get(StateResource.RUNTIME_ENVS, "x")


def test_another_address_than_the_sessions_is_refused(session: None) -> None:
    own = skate.get_runtime_context().get_session_dir()
    assert state.list_actors(address=own) == state.list_actors(address="auto") == []
    with pytest.raises(InvalidQueryError, match="attached to"):
        state.list_actors(address="/somewhere/else")


def test_without_a_session_or_a_node_there_is_nobody_to_ask(no_session: None) -> None:
    with pytest.raises(ConnectionError, match="skate start"):
        state.list_actors()
    assert not skate.is_initialized()


def test_tasks_can_ask_too(session: None) -> None:
    @skate.remote
    def ask() -> list[str]:
        return [row.state for row in state.list_tasks(filters=[("name", "=", "ask")])]

    assert skate.get(ask.remote()) == ["RUNNING"]


# ------------------------------------------------------------ logs


def test_logs_are_listed_and_read(session: None) -> None:
    actor = Worker.remote()
    for line in ("one", "two", "\x1b[31mthree\x1b[0m"):
        skate.get(actor.say.remote(line))
    pid = skate.get(actor.pid.remote())
    id = actor._actor_id.hex()
    eventually(lambda: "three" in "".join(state.get_log(actor_id=id)))
    assert "".join(state.get_log(pid=pid, tail=2)) == "two\n\x1b[31mthree\x1b[0m\n"
    assert "".join(state.get_log(pid=pid, tail=1, filter_ansi_code=True)) == "three\n"
    (name,) = state.list_logs(glob_filter="worker*")["worker_out"]
    assert "".join(state.get_log(filename=name)) == "".join(state.get_log(actor_id=id))
    assert "node.log" in state.list_logs()["node"]


def test_a_log_is_followed_as_it_grows(session: None) -> None:
    actor = Worker.remote()
    skate.get(actor.say.remote("first"))
    text = state.get_log(actor_id=actor._actor_id.hex(), follow=True, _interval=0.01)
    assert next(text) == "first\n"
    skate.get(actor.say.remote("second"))
    assert next(text) == "second\n"


def test_the_log_of_a_dead_actor_stays(session: None) -> None:
    actor = Worker.remote()
    skate.get(actor.say.remote("last words"))
    skate.kill(actor)
    id = actor._actor_id.hex()
    eventually(lambda: state.get_actor(id).state == "DEAD")
    assert "".join(state.get_log(actor_id=id)) == "last words\n"


def test_the_log_of_a_tasks_worker_is_found(session: None) -> None:
    reference = quick.remote()
    skate.get(reference)
    eventually(lambda: "quick was here" in "".join(state.get_log(task_id=reference.task_id().hex())))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "Select one log"),
        ({"pid": 1, "filename": "x"}, "Select one log"),
        ({"filename": "../lock"}, "is a path"),
        ({"filename": "nothing.log"}, "node.log"),
        ({"actor_id": "00"}, "no actor"),
        ({"pid": 1}, "no process 1"),
    ],
)
def test_a_log_that_does_not_exist_is_explained(session: None, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidQueryError, match=words):
        list(state.get_log(**asked))


# ------------------------------------------------------------ why


def test_why_names_what_an_argument_waits_for(session: None) -> None:
    signal = Signal.remote()
    first = wait_for.options(name="first").remote(signal)
    second = wait_for.options(name="second").remote(signal, first)
    skate.get(signal.wait_for_waiters.remote(1))
    text = state.why(second)
    assert text.splitlines()[0] == "task second waits for its arguments:"
    assert "  task first runs on pid" in text
    assert state.why(second.hex()) == state.why(second.task_id().hex()) == text
    skate.get(signal.send.remote())
    skate.get(second)
    assert "is there" in state.why(second)


def test_why_names_who_holds_the_resources(session: None) -> None:
    signal = Signal.remote()
    holder = Worker.options(num_cpus=2).remote()
    pid = skate.get(holder.pid.remote())
    waiting = wait_for.options(name="patient").remote(signal)
    text = state.why(waiting)
    assert "task patient waits for a worker: it asks for {'CPU': 1.0}" in text
    assert f"pid {pid} holds {{'CPU': 2.0}} for Worker" in text
    skate.get(signal.send.remote())
    skate.kill(holder)
    assert skate.get(waiting) == 1


@pytest.mark.parametrize("bad", ["xyz", "00", "00" * 99])
def test_why_needs_an_id(session: None, bad: str) -> None:
    with pytest.raises(InvalidQueryError, match=r"is not (an|the) id"):
        state.why(bad)


def test_why_needs_a_reference(session: None) -> None:
    with pytest.raises(TypeError, match="ObjectRef"):
        state.why(7)  # type: ignore[arg-type]


# ------------------------------------------------------------ without a session


def test_filters_that_contradict_each_other_are_noticed() -> None:
    assert not ListApiOptions(filters=[("name", "=", "a"), ("name", "=", "a")]).has_conflicting_filters()
    assert not ListApiOptions(filters=[("name", "!=", "a"), ("name", "!=", "b")]).has_conflicting_filters()
    assert ListApiOptions(filters=[("name", "=", "a"), ("name", "=", "b")]).has_conflicting_filters()


def test_columns_are_told_apart_by_what_they_are_for() -> None:
    assert TaskState.list_columns(detail=False)[:4] == ["task_id", "attempt_number", "name", "state"]
    assert "events" in TaskState.detail_columns()
    assert TaskState.base_columns() | TaskState.detail_columns() == TaskState.columns()
    assert "events" not in TaskState.filterable_columns()


def test_raw_numbers_become_words() -> None:
    assert Humanify.memory(1024) == "1.000 KiB"
    assert Humanify.memory(1024**3) == "1.000 GiB"
    assert Humanify.duration(1_610_000_000) == "18 days, 15:13:20"
    assert "1970-01" in Humanify.timestamp(1_610_000_000)
    assert Humanify.node_resources({"CPU": 2, "memory": 2048}) == {"CPU": 2, "memory": "2.000 KiB"}
    row = RuntimeEnvState.humanify({"creation_time_ms": 36_639})
    assert row["creation_time_ms"] == "0:00:36.639000"
