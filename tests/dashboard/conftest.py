"""A session that the tests of a module share, and a dashboard of it for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.conftest import LeakWatch
from tests.dashboard.support import Page, dashboard


@pytest.fixture(scope="module")
def session(leak_watch: LeakWatch) -> Iterator[None]:
    """A session with two CPUs."""
    with leak_watch.shared_session(num_cpus=2, log_to_driver=False):
        yield


@pytest.fixture
async def page(session: None) -> AsyncIterator[Page]:
    """A dashboard of the session."""
    async with dashboard() as made:
        yield made
