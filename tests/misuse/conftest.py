"""One session for the mistakes of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import LeakWatch


@pytest.fixture(scope="module")
def session(leak_watch: LeakWatch) -> Iterator[None]:
    with leak_watch.shared_session(num_cpus=2):
        yield
