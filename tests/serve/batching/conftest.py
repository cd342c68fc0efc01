"""Batches leave nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from skate.serve import context
from tests.serve.batching.recorder import LONG, Recorder, settled


@pytest.fixture(autouse=True)
async def no_tasks_are_left() -> AsyncIterator[None]:
    yield
    await settled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.fixture(autouse=True)
def no_request_is_left() -> Iterator[None]:
    token = context._request.set(None)
    yield
    context._request.reset(token)


@pytest.fixture
def settings() -> Iterator[None]:
    """Undo what a test sets on the class that tests share."""
    yield
    Recorder.double.set_max_batch_size(3)
    Recorder.double.set_batch_wait_timeout_s(LONG)
