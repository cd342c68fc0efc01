"""The tables have the columns of the local engine's, and `why` explains waits."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

import skate
from skate import _engine
from skate._engine.abc import Table
from skate._engine.inline.engine import InlineEngine

TABLES = tuple(set(Table) - {Table.RUNTIME_ENVS})


@skate.remote
class Gate:
    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def passed(self) -> None:
        await self.opened.wait()


@skate.remote
def echo(value: Any) -> Any:
    return value


def populate() -> list[Any]:
    actor = Gate.options(name="gate", num_cpus=1).remote()
    skate.get(actor.__ray_ready__.remote())
    group = skate.util.placement_group([{"CPU": 1}])
    group.wait(30)
    ref = echo.remote([1] * 1000)
    skate.get(ref)
    return [actor, group, ref, skate.put("x" * 200_000)]


def columns() -> dict[str, set[str]]:
    engine: Any = _engine.running()
    return {table: {column for row in engine.state(table) for column in row} for table in TABLES}


def test_the_tables_have_the_columns_of_the_local_engine() -> None:
    with skate.init(engine="local", num_cpus=4):
        kept = populate()
        local = columns()
        kept.clear()
    with skate.init(engine="inline", num_cpus=4):
        kept = populate()
        assert columns() == local
        kept.clear()


def test_tasks_are_remembered_with_their_states(engine: InlineEngine) -> None:
    @skate.remote
    def fail() -> None:
        raise ValueError("listed")

    gate = Gate.remote()
    late = gate.passed.remote()
    refs = [echo.remote(1), fail.remote(), echo.options(name="late").remote(late)]
    rows = {row["task_id"]: row for row in engine.state(Table.TASKS)}
    found = [rows[ref.task_id().binary()] for ref in refs]
    assert [row["state"] for row in found] == ["FINISHED", "FAILED", "PENDING_ARGS_AVAIL"]
    assert [row["name"] for row in found] == ["echo", "fail", "late"]
    assert found[1]["error_type"] == "TASK_EXECUTION_EXCEPTION"
    assert {row["worker_pid"] for row in found} == {os.getpid()}
    assert rows[late.task_id().binary()]["type"] == "ACTOR_TASK"


def test_actors_are_listed_alive_and_dead(engine: InlineEngine) -> None:
    actor = Gate.options(name="gate", num_cpus=2).remote()
    (row,) = engine.state(Table.ACTORS)
    assert (row["class_name"], row["name"], row["state"]) == ("Gate", "gate", "ALIVE")
    assert row["required_resources"] == {"CPU": 2.0}
    skate.kill(actor)
    (row,) = engine.state(Table.ACTORS)
    assert row["state"] == "DEAD"
    assert "kill" in row["death_cause"]


def test_an_unknown_table_names_those_there_are(engine: InlineEngine) -> None:
    with pytest.raises(ValueError, match="tasks"):
        engine.state("furniture")  # type: ignore[arg-type]


def test_why_follows_the_chain_to_its_end(engine: InlineEngine) -> None:
    gate = Gate.remote()
    ref = echo.remote(echo.remote(gate.passed.remote()))
    lines = engine.why(ref)
    assert lines[0] == "task echo waits for its arguments:"
    assert lines[1] == "  task echo waits for its arguments:"
    assert lines[2].startswith("    coroutine Gate.passed waits at ")
    assert engine.why(skate.put(1))[0].endswith("is there")


def test_why_names_who_keeps_an_actor_from_starting(engine: InlineEngine) -> None:
    first = Gate.options(num_cpus=4).remote()
    second = Gate.options(num_cpus=4).remote()
    text = "\n".join(engine.why(second.passed.remote()))
    assert "PENDING_CREATION" in text
    assert "held by actor Gate" in text
    del first


def test_the_runtime_context_knows_task_and_actor(engine: InlineEngine) -> None:
    @skate.remote
    class Actor:
        def facts(self) -> tuple[Any, ...]:
            context = skate.get_runtime_context()
            return (
                context.get_actor_id(),
                context.get_actor_name(),
                context.get_task_name(),
                context.get_task_function_name().rsplit(".", 2)[-2:],
                context.get_assigned_resources(),
                context.namespace,
            )

    actor = Actor.options(name="named", num_cpus=2).remote()
    id, name, task, function, resources, namespace = skate.get(actor.facts.remote())
    assert id == actor._actor_id.hex()
    assert (name, task, function) == ("named", "Actor.facts", ["Actor", "facts"])
    assert resources == {"CPU": 2.0}
    assert namespace == skate.get_runtime_context().namespace
    assert skate.get_runtime_context().get_task_id() is None
