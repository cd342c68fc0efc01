"""Fixtures for every test: nothing may leak."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import cloudpickle
import pytest
from hypothesis import HealthCheck, settings

import tests
from tests import leaks

pytest_plugins = [
    f"tests.plugins.{name}" for name in ("suites", "platforms", "sessions", "command_line", "s3")
]

ENGINES = ("inline", "local")

# The threads of OpenMP sleep while they wait for each other: on a busy machine, spinning takes longer than their work.
# Libraries read the variable when they are loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# How long an example takes says how busy the machine is.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    # Here and not in contract/, where pytest would see it too late when it runs all tests.
    parser.addoption(
        "--engine",
        action="append",
        metavar="NAME",
        help=f"engine to run the contract suite on; repeat for several (default: {', '.join(ENGINES)})",
    )
    parser.addoption("--no-leak-check", action="store_true", help="do not look for leaks after each test")


def pytest_configure(config: pytest.Config) -> None:
    leaks.mark_this_run()
    if "ray" not in (config.getoption("--engine") or ()):
        # Pickle functions and classes of tests by value, like those of a script or a notebook. By reference, each
        # worker would import the test module, and with it pytest, which takes longer than most tests.
        cloudpickle.register_pickle_by_value(tests)
    else:
        # Sockets and files that Ray forgets to close, and its own use of what is deprecated.
        for kind in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning", "FutureWarning"):
            config.addinivalue_line("filterwarnings", f"ignore::{kind}")
    # A shell has programs in the background ignore Ctrl-C, and so would all that the tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Folders of our own, so that parallel runs on one machine do not see each other's sessions, and no run
    # sees what an earlier one cached. They have to be short: socket paths end at about 100 characters.
    for name in ("SKATE_TMPDIR", "SKATE_CACHE_DIR"):
        if name not in os.environ:
            os.environ[name] = _folder_of_this_run(config)
    # What workers and programs leave in the temporary directory goes with the run: one that is killed cannot tidy up.
    os.environ["TMPDIR"] = _folder_of_this_run(config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the tests that passed at a second try: each is a fault of the test or of what it tests."""
    names = sorted({report.nodeid for report in terminalreporter.getreports("rerun")})
    if config.pluginmanager.hasplugin("rerunfailures"):
        terminalreporter.section(f"tests that needed a rerun: {len(names)}", yellow=bool(names))
        for name in names:
            terminalreporter.line(name)


def _folder_of_this_run(config: pytest.Config) -> str:
    folder = tempfile.mkdtemp(prefix="skt-")
    config.add_cleanup(functools.partial(shutil.rmtree, folder, ignore_errors=True))
    return folder


def _looks_for_leaks(config: pytest.Config) -> bool:
    # What Ray leaves in the process of its driver is Ray's.
    return not config.getoption("--no-leak-check") and "ray" not in (config.getoption("--engine") or ())


@dataclass
class LeakWatch:
    """What there was before the module's first session, and whether its tests share one."""

    before: leaks.Snapshot
    session_is_shared: bool = False

    def check(self) -> None:
        """Fail the running test if anything is left that was not there before."""
        leaked = leaks.leaked_since(self.before)
        if leaked:
            self.before = leaks.Snapshot.take()  # Blame one test only.
            pytest.fail("leaked:\n  " + "\n  ".join(leaked), pytrace=False)

    @contextmanager
    def shared_session(self, **options: Any) -> Iterator[None]:
        """Start a session that the tests of a module share; shut it down at the end."""
        import skate

        skate.init(**options)
        self.session_is_shared = True
        yield
        skate.shutdown()
        self.session_is_shared = False


@pytest.fixture(scope="session", autouse=True)
def event_loops_have_run() -> None:
    """Start a loop of the kind that Serve uses: its library keeps a pipe for signals, which no test has leaked."""
    try:
        import uvloop
    except ImportError:
        return
    loop = uvloop.new_event_loop()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


@pytest.fixture(scope="module", autouse=True)
def leak_watch(request: pytest.FixtureRequest) -> Iterator[LeakWatch]:
    """Check at the end of each module, when a shared session has been shut down, that nothing is left."""
    # Collections of garbage, of which there are hundreds, skip what the program has imported until here: it stays.
    gc.collect()
    gc.freeze()
    watch = LeakWatch(leaks.Snapshot.take())
    yield watch
    if _looks_for_leaks(request.config):
        watch.check()


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest, leak_watch: LeakWatch) -> Iterator[None]:
    """Check after each test that ends without a session that nothing is left."""
    yield
    if not _looks_for_leaks(request.config):
        return
    skate = sys.modules.get("skate")
    if skate is not None and skate.is_initialized():
        if leak_watch.session_is_shared:
            return
        skate.shutdown()
        pytest.fail("leaked: the test left its session open", pytrace=False)
    leak_watch.check()


@pytest.fixture(autouse=True)
def ray_means_ray_again() -> Iterator[None]:
    """Some tests import all there is, `skate.as_ray` too, after which `import ray` would mean Skate."""
    yield
    as_ray = sys.modules.get("skate.as_ray")
    if as_ray is not None:
        as_ray.uninstall()


@pytest.fixture
def by_reference() -> Iterator[None]:
    """Pickle functions and classes of tests by reference, like those of an imported module."""
    is_by_value = tests.__name__ in cloudpickle.list_registry_pickle_by_value()
    if is_by_value:
        cloudpickle.unregister_pickle_by_value(tests)
    yield
    if is_by_value:
        cloudpickle.register_pickle_by_value(tests)


@pytest.fixture(scope="session")
def polars_is_running() -> None:
    """Start the threads of Polars, which it keeps with their descriptors: no test has leaked them."""
    import polars as pl

    pl.DataFrame({"x": [1, 1]}).lazy().group_by("x").agg(pl.len()).collect(engine="streaming")
