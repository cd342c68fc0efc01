"""One session for the tests of a module, on the engine that each of them requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import skate
from tests.conftest import LeakWatch

NUM_CPUS = 4


class ModuleSession:
    """The session that a module's tests share."""

    def __init__(self, leak_watch: LeakWatch) -> None:
        self._leak_watch = leak_watch
        self._engine: str | None = None

    def use(self, engine: str) -> None:
        """Be on this engine from now on."""
        if self._engine != engine or not skate.is_initialized():
            self.close()
            skate.init(engine=engine, num_cpus=NUM_CPUS)
            self._engine = engine
            self._leak_watch.session_is_shared = True

    def close(self) -> None:
        """End it, if there is one."""
        skate.shutdown()
        self._engine = None
        self._leak_watch.session_is_shared = False


@pytest.fixture(scope="module")
def module_session(leak_watch: LeakWatch) -> Iterator[ModuleSession]:
    session = ModuleSession(leak_watch)
    yield session
    session.close()


@pytest.fixture(scope="module", params=["inline", "local"])
def engine(request: pytest.FixtureRequest) -> str:
    """Each of the engines, by name."""
    return str(request.param)


@pytest.fixture
def any_engine(engine: str, module_session: ModuleSession) -> str:
    """Run the test on each of the engines, in a session that the module shares."""
    module_session.use(engine)
    return engine


@pytest.fixture
def local(module_session: ModuleSession) -> None:
    """Run the test on the local engine, in a session that the module shares."""
    module_session.use("local")


@pytest.fixture
def no_session(module_session: ModuleSession) -> Iterator[None]:
    """Start without a session; the test may start its own."""
    module_session.close()
    yield
    skate.shutdown()
