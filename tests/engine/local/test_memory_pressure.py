"""What processes let go of when the object store is getting full."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

import skate

MEGABYTE = 1 << 20


@pytest.fixture
def session() -> Iterator[None]:
    skate.init(num_cpus=1, object_store_memory=100 * MEGABYTE)
    yield
    skate.shutdown()


@skate.remote(num_cpus=0)
class Hoarder:
    """Keeps objects in cycles that only the garbage collector finds."""

    def __init__(self) -> None:
        import threading

        gc.disable()
        self.collected = threading.Event()
        gc.callbacks.append(lambda phase, info: self.collected.set())

    def hoard(self, megabytes: int) -> None:
        cycle: list[Any] = [skate.put(b"x" * (megabytes * MEGABYTE))]
        cycle.append(cycle)

    def has_collected(self, timeout_s: float) -> bool:
        return self.collected.wait(timeout_s)


def test_cycles_that_keep_objects_are_collected_when_memory_gets_short(session: None) -> None:
    hoarder = Hoarder.remote()
    skate.get([hoarder.hoard.remote(20) for _ in range(3)])
    assert not skate.get(hoarder.has_collected.remote(0))
    skate.get(hoarder.hoard.remote(20))
    assert skate.get(hoarder.has_collected.remote(30))
