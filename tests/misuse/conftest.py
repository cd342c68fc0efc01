"""One session for the mistakes of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import skate
from tests.conftest import LeakWatch


@pytest.fixture(scope="module")
def session(leak_watch: LeakWatch) -> Iterator[None]:
    skate.init(num_cpus=2)
    leak_watch.session_is_shared = True
    yield
    skate.shutdown()
    leak_watch.session_is_shared = False
