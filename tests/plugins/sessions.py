"""A pytest plugin: sessions on each engine, and tests that an engine is known to fail.

A test that declares `pytestmark = pytest.mark.usefixtures("engine")` shares one session with its module; a test
that asks for `fresh` starts its own with the arguments it wants. On Ray the session is one with a cluster of three
nodes, which have four CPUs together; a test that is about one machine with four is marked `one_machine`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

import skate
from tests.conftest import LeakWatch
from tests.plugins.ray_clusters import OF_THE_MACHINE, ONE_MACHINE, THREE_NODES, Clusters

NUM_CPUS = 4
USUAL_ON_RAY = {"num_cpus": NUM_CPUS, "num_gpus": 0}  # what the clusters have that most tests use
NOT_RUN = "not run: "  # begins the reason of a gap whose test would hang the run, or end it

_failed = pytest.StashKey[bool]()


def gap_for(item: pytest.Item, gaps: Mapping[tuple[str, str], str], folder: Path) -> str | None:
    """Return why the test is expected to fail on its engine, or None.

    A gaps.py lists a test as `test_tasks.py::test_name`, from its own folder, or with the test's own parameters but not
    the engine: `test_tasks.py::test_name[3]`.
    """
    callspec = getattr(item, "callspec", None)
    engine = callspec.params.get("engine_name") if callspec else None
    if callspec is None or engine is None:
        return None
    name = f"{item.path.relative_to(folder)}::{getattr(item, 'originalname', item.name)}"
    parameters = "-".join(part for part in callspec.id.split("-") if part != engine)
    return gaps.get((engine, name)) or gaps.get((engine, f"{name}[{parameters}]"))


def declare_gap(item: pytest.Item, reason: str) -> None:
    """Expect a test to fail, and do not run one that would hang the run, or end it."""
    item.add_marker(pytest.mark.xfail(reason=reason, strict=True, run=not reason.startswith(NOT_RUN)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and not report.passed:
        item.stash[_failed] = True
    return report


class Arguments(Protocol):
    """Complete what a test gives to `skate.init`."""

    def __call__(self, given: dict[str, Any], *, one_machine: bool = False) -> dict[str, Any]: ...


class Start(Protocol):
    """Start a session of the test's own with the given `skate.init` arguments."""

    def __call__(self, **init_kwargs: Any) -> Any: ...


@pytest.fixture(scope="module")
def engine_name(request: pytest.FixtureRequest) -> str:
    """The engine under test, by name."""
    return str(request.param)


@pytest.fixture(scope="session")
def clusters() -> Iterator[Clusters]:
    """The Ray clusters of this run."""
    clusters = Clusters()
    yield clusters
    clusters.close()


@pytest.fixture(scope="module")
def init_arguments(engine_name: str, clusters: Clusters) -> Arguments:
    """Return a function that completes what a test gives to `skate.init` with what its engine needs."""

    def complete(given: dict[str, Any], *, one_machine: bool = False) -> dict[str, Any]:
        if engine_name != "ray":
            return {"engine": engine_name, "num_cpus": NUM_CPUS, **given}
        machine = {key: value for key, value in given.items() if key in OF_THE_MACHINE}
        node = {key: value for key, value in machine.items() if value != USUAL_ON_RAY.get(key)}
        arguments = {key: value for key, value in given.items() if key not in OF_THE_MACHINE}
        usual = ONE_MACHINE if one_machine else THREE_NODES
        nodes = ({"num_cpus": NUM_CPUS, **node},) if node else usual
        return {"engine": "ray", "address": clusters.address(*nodes), "preflight": "off", **arguments}

    return complete


@pytest.fixture(scope="module")
def shared_session(engine_name: str, leak_watch: LeakWatch) -> Iterator[dict[str, bool]]:
    """Close the session that the module's tests share, after the last of them; say what it is like."""
    yield {"one_machine": False}
    skate.shutdown()
    leak_watch.session_is_shared = False


@pytest.fixture
def engine(
    request: pytest.FixtureRequest,
    engine_name: str,
    init_arguments: Arguments,
    shared_session: dict[str, bool],
    leak_watch: LeakWatch,
) -> Iterator[str]:
    """Run the test in a session that its module shares; return the engine's name."""
    if "fresh" in request.fixturenames:  # the test starts a session of its own
        yield engine_name
        return
    one_machine = engine_name == "ray" and request.node.get_closest_marker("one_machine") is not None
    if skate.is_initialized() and shared_session["one_machine"] != one_machine:
        skate.shutdown()
    if not skate.is_initialized():
        skate.init(**init_arguments({}, one_machine=one_machine))
        shared_session["one_machine"] = one_machine
        leak_watch.session_is_shared = True
    yield engine_name
    if request.node.stash.get(_failed, False):
        # What a failed test left running must not fail the next one.
        skate.shutdown()
        leak_watch.session_is_shared = False


@pytest.fixture
def fresh(
    init_arguments: Arguments, shared_session: dict[str, bool], leak_watch: LeakWatch
) -> Iterator[Start]:
    """Return a function that starts a session for this test alone, with any `skate.init` arguments."""
    skate.shutdown()
    leak_watch.session_is_shared = False

    def start(**init_kwargs: Any) -> Any:
        return skate.init(**init_arguments(init_kwargs))

    yield start
    skate.shutdown()
