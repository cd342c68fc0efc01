"""The runtime context: ids, resources and the current actor."""

from __future__ import annotations

import os
from typing import Any

import pytest

import skate
from tests.plugins.sessions import Start

pytestmark = pytest.mark.usefixtures("engine")


@skate.remote
def ids() -> dict[str, Any]:
    context = skate.get_runtime_context()
    return {
        "job": context.get_job_id(),
        "node": context.get_node_id(),
        "worker": context.get_worker_id(),
        "task": context.get_task_id(),
        "actor": context.get_actor_id(),
    }


@skate.remote
class Actor:
    def ids(self) -> dict[str, Any]:
        context = skate.get_runtime_context()
        return {
            "job": context.get_job_id(),
            "worker": context.get_worker_id(),
            "task": context.get_task_id(),
            "actor": context.get_actor_id(),
        }

    def task_name(self) -> str | None:
        return skate.get_runtime_context().get_task_name()

    def function_name(self) -> str | None:
        return skate.get_runtime_context().get_task_function_name()

    def me(self) -> Any:
        return skate.get_runtime_context().current_actor

    def name(self) -> str | None:
        return skate.get_runtime_context().get_actor_name()


def test_ids_are_hexadecimal_text() -> None:
    for value in skate.get(ids.remote()).values():
        if value is not None:
            assert bytes.fromhex(value)


def test_job_and_node_are_the_drivers_in_every_task() -> None:
    context = skate.get_runtime_context()
    seen = skate.get(ids.remote())
    assert seen["job"] == context.get_job_id()
    assert seen["node"] == context.get_node_id()


def test_each_task_has_an_id_of_its_own() -> None:
    a, b = skate.get([ids.remote(), ids.remote()])
    assert a["task"] != b["task"]


def test_the_task_id_is_the_one_in_its_ref() -> None:
    ref = ids.remote()
    assert skate.get(ref)["task"] == ref.task_id().hex()


def test_the_driver_runs_no_task_and_no_actor() -> None:
    context = skate.get_runtime_context()
    assert context.get_actor_id() is None
    assert context.get_task_name() is None
    assert context.get_actor_name() is None


def test_a_task_is_in_no_actor() -> None:
    assert skate.get(ids.remote())["actor"] is None


def test_an_actor_has_one_id_and_its_calls_have_their_own() -> None:
    actor = Actor.remote()
    a, b = skate.get([actor.ids.remote(), actor.ids.remote()])
    assert a["actor"] == b["actor"] == actor._actor_id.hex()
    assert a["worker"] == b["worker"]
    assert a["task"] != b["task"]


def test_a_worker_id_belongs_to_a_process() -> None:
    assert skate.get(ids.remote())["worker"] != skate.get_runtime_context().get_worker_id()


def test_the_task_name_of_a_call_names_class_and_method() -> None:
    assert skate.get(Actor.remote().task_name.remote()).endswith("Actor.task_name")


def test_the_function_name_of_a_call_names_class_and_method() -> None:
    assert skate.get(Actor.remote().function_name.remote()).endswith("Actor.function_name")


def test_function_names_leave_out_what_encloses_them_but_in_async_actors() -> None:
    def name() -> str | None:
        return skate.get_runtime_context().get_task_function_name()

    @skate.remote
    def task() -> str | None:
        return name()

    @skate.remote
    class Plain:
        def method(self) -> str | None:
            return name()

    @skate.remote
    class Async:
        async def method(self) -> str | None:
            return name()

    here = test_function_names_leave_out_what_encloses_them_but_in_async_actors.__name__
    assert skate.get(task.remote()) == f"{__name__}.task"
    assert skate.get(Plain.remote().method.remote()) == f"{__name__}.Plain.method"
    assert skate.get(Async.remote().method.remote()) == f"{__name__}.{here}.<locals>.Async.method"


def test_current_actor_is_the_actor_itself() -> None:
    actor = Actor.remote()
    assert skate.get(actor.me.remote()) == actor


def test_current_actor_outside_an_actor_is_an_error() -> None:
    with pytest.raises(RuntimeError):
        skate.get_runtime_context().current_actor  # noqa: B018


def test_an_unnamed_actor_has_an_empty_name() -> None:
    assert not skate.get(Actor.remote().name.remote())


def test_the_namespace_is_the_jobs(fresh: Start) -> None:
    fresh(namespace="space")

    @skate.remote
    def namespace() -> str:
        return skate.get_runtime_context().namespace

    assert skate.get(namespace.remote()) == "space"


def test_a_job_without_namespace_gets_one() -> None:
    assert skate.get_runtime_context().namespace


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_get_as_dict_has_the_ids() -> None:
    context = skate.get_runtime_context().get()
    assert {"job_id", "node_id", "namespace"} <= set(context)


def test_assigned_resources_are_those_of_the_actor() -> None:
    @skate.remote(num_cpus=2)
    class Cpus:
        def assigned(self) -> dict[str, float]:
            return skate.get_runtime_context().get_assigned_resources()

    assert skate.get(Cpus.remote().assigned.remote()) == {"CPU": 2.0}


def test_the_context_is_reached_from_the_module_too() -> None:
    from skate.runtime_context import get_runtime_context

    assert get_runtime_context().get_job_id() == skate.get_runtime_context().get_job_id()


def test_a_task_runs_in_the_callers_working_folder() -> None:
    @skate.remote
    def folder() -> str:
        return os.getcwd()

    assert os.path.realpath(skate.get(folder.remote())) == os.path.realpath(os.getcwd())


def test_the_worker_of_the_context_has_the_ids_of_the_context() -> None:
    @skate.remote
    def check() -> tuple[bool, bool, bool]:
        context = skate.get_runtime_context()
        worker = context.worker
        return (
            worker.current_job_id.hex() == context.get_job_id(),
            worker.current_node_id.hex() == context.get_node_id(),
            worker.worker_id.hex() == context.get_worker_id(),
        )

    assert skate.get(check.remote()) == (True, True, True)
