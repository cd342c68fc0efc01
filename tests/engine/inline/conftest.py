"""An inline session for each test: it starts in less than a millisecond."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import skate
from skate import _engine
from skate._engine.inline.engine import InlineEngine


@pytest.fixture
def engine() -> Iterator[InlineEngine]:
    """Return the engine of a session with four CPUs."""
    skate.init(engine="inline", num_cpus=4)
    running: Any = _engine.running()
    yield running
    skate.shutdown()


@pytest.fixture
def log() -> list[Any]:
    """Return a list that tasks of this process append to, in the order in which they run."""
    events.clear()
    return events


# Found by tasks through their module, which they share with the tests: one process has one of it.
events: list[Any] = []


def note(event: Any) -> None:
    """Append to the log, from anywhere."""
    events.append(event)
