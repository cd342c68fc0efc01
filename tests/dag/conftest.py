"""One session for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import skate
from tests.conftest import LeakWatch


@pytest.fixture(scope="module")
def shared_session(leak_watch: LeakWatch) -> Iterator[None]:
    """Close the session that the module's tests share, after the last of them."""
    yield
    skate.shutdown()
    leak_watch.session_is_shared = False


@pytest.fixture
def session(shared_session: None, leak_watch: LeakWatch) -> None:
    """Run the test in a session that its module shares."""
    if not skate.is_initialized():
        skate.init(num_cpus=4)
        leak_watch.session_is_shared = True
