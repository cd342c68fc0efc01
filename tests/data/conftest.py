"""Run the tests of datasets in this process, and on the workers of every engine.

A test that asks for `where` runs with plans of any size in this process ("here"), and with plans of any size on the
workers of each engine; in a module that names them in `MORE_PLACES`, on "threads" of this process too, as far as these
can run a plan. With `--engine ray`, only on Ray. In this process there is no session, but for the tests that are marked
`starts_session`: the first that needs one starts it, and those that follow in the module share it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import skate
from skate.data import DataContext
from skate.data._exec.drivers import inprocess
from skate.data.checkpoint import CheckpointConfig
from tests.conftest import ENGINES, LeakWatch

HERE = "here"
ROOM_IN_MEMORY = 4 << 30
THREADS = "threads"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    given = metafunc.config.getoption("--engine")
    if "where" in metafunc.fixturenames:
        more = getattr(metafunc.module, "MORE_PLACES", ())
        metafunc.parametrize("engine_name", given or [HERE, *more, *ENGINES], scope="module")
    elif "engine_name" in metafunc.fixturenames:
        metafunc.parametrize("engine_name", given or ENGINES, scope="module")


@pytest.fixture(autouse=True)
def settings() -> Iterator[DataContext]:
    """Settings that a test may change."""
    before = DataContext.get_current()
    DataContext._set_current(DataContext())
    yield DataContext.get_current()
    DataContext._set_current(before)


@pytest.fixture
def where(
    request: pytest.FixtureRequest, engine_name: str, settings: DataContext, leak_watch: LeakWatch
) -> Iterator[str]:
    """Where plans run: in this process, or on the workers of an engine; by name."""
    if engine_name in (HERE, THREADS):
        request.getfixturevalue("shared_session")  # closes it after the last test
        leak_watch.session_is_shared = request.node.get_closest_marker("starts_session") is not None
        if not leak_watch.session_is_shared:
            skate.shutdown()
        if engine_name == HERE:
            request.getfixturevalue("in_process")
        settings.small_plan_bytes = 1 << 60 if engine_name == HERE else 0
        yield engine_name
        if not leak_watch.session_is_shared:
            skate.shutdown()
    else:
        request.getfixturevalue("engine")
        settings.small_plan_bytes = settings.relational_plan_bytes = 0
        yield engine_name


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, if there is room: tests flush thousands of files, and some disks take 0.2 s for each."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or shutil.disk_usage(memory).free < ROOM_IN_MEMORY:
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix=f"{tmp_path.name}-", dir=memory))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let plans that begin in this process end in it, however slow it is."""
    monkeypatch.setattr(inprocess, "IN_PROCESS_SECONDS", float("inf"))


@pytest.fixture
def keeps(settings: DataContext, tmp_path: Path) -> Path:
    """Note ids in a folder, and keep them when everything is written."""
    folder = tmp_path / "ids"
    settings.checkpoint_config = CheckpointConfig("id", str(folder), delete_checkpoint_on_success=False)
    return folder


@pytest.fixture(scope="session", autouse=True)
def nothing_of_polars_leaks(polars_is_running: None) -> None:
    """Start Polars before the first test is looked at."""
