"""Broadcasts through the store of a process group."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

dist = pytest.importorskip("torch.distributed")

from skate.train.torch._store_broadcast import StoreBroadcast  # noqa: E402


def broadcast(store: Any, values: list[Any]) -> list[Any]:
    """Broadcast from one thread per value, and return what each thread received."""
    with ThreadPoolExecutor(len(values)) as threads:
        ranks = [StoreBroadcast(store, rank, len(values), timeout=30) for rank in range(len(values))]
        return list(threads.map(lambda rank, value: rank(value), ranks, values))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_process_receives_the_value_of_rank_0_and_the_store_is_left_empty(size: int) -> None:
    store = dist.HashStore()
    for turn in range(3):
        values = [f"rank {rank}, turn {turn}" for rank in range(size)]
        assert broadcast(store, values) == values[:1] * size
    assert store.num_keys() == size, "the numbers of calls"


def test_a_process_that_is_missing_is_an_error() -> None:
    store = dist.HashStore()
    with pytest.raises(dist.DistStoreError):
        StoreBroadcast(store, rank=1, world_size=2, timeout=0.1)("rank 1")
