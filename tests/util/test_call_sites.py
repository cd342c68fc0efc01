"""The call sites of tasks, actors and calls, which are recorded if a variable enables it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import skate
from skate.util.state import list_actors, list_tasks, summarize_objects

VARIABLE = "RAY_record_task_actor_creation_sites"


@skate.remote
def leaf() -> int:
    return 1


@skate.remote
def submit_leaf() -> Any:
    return skate.get(leaf.remote())


@skate.remote
class Counter:
    def add(self) -> int:
        return 1


@skate.remote
def create_counter() -> Any:
    counter = Counter.remote()
    return counter, skate.get(counter.add.remote())


@pytest.fixture
def session() -> Iterator[None]:
    yield
    skate.shutdown()


def sites() -> dict[str, str | None]:
    """Return the call sites of tasks and calls, by name, and those of actors, by class."""
    tasks = {row.name: row.call_site for row in list_tasks(detail=True)}
    return tasks | {row.class_name: row.call_site for row in list_actors(detail=True)}


@pytest.mark.usefixtures("session")
def test_tasks_of_the_program_record_their_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    skate.init(engine="local", num_cpus=2)
    skate.get(leaf.remote())
    site = sites()["leaf"]
    assert site is not None
    assert "test_tasks_of_the_program_record_their_stack" in site
    assert "skate.get(leaf.remote())" in site
    assert "_engine" not in site


@pytest.mark.usefixtures("session")
def test_what_tasks_submit_records_their_stack_if_their_environment_has_the_variable() -> None:
    skate.init(engine="local", num_cpus=2, runtime_env={"env_vars": {VARIABLE: "true"}})
    skate.get(submit_leaf.remote())
    kept = skate.get(create_counter.remote())
    found = sites()
    assert "in submit_leaf" in (found["leaf"] or "")
    assert "in create_counter" in (found["Counter"] or "")
    assert "in create_counter" in (found["Counter.add"] or "")
    assert found["submit_leaf"] is None  # the program has no variable
    del kept


@pytest.mark.usefixtures("session")
def test_without_the_variable_nothing_is_recorded() -> None:
    skate.init(engine="local", num_cpus=2)
    skate.get(submit_leaf.remote())
    assert set(sites().values()) == {None}


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("enabled", [True, False])
def test_the_summary_of_objects_says_whether_sites_are_recorded(
    monkeypatch: pytest.MonkeyPatch, enabled: bool
) -> None:
    monkeypatch.setenv("RAY_record_ref_creation_sites", str(int(enabled)))
    skate.init(engine="local", num_cpus=1)
    kept = skate.put(b"x" * 1_000_000)
    found = summarize_objects()["cluster"]
    assert found["callsite_enabled"] is enabled
    assert any("test_call_sites.py" in site for site in found["summary"]) is enabled
    del kept
