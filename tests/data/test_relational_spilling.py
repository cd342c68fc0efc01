"""Sorting, grouping and joining more data than the object store holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import skate
from skate.data import DataContext
from skate.data.aggregate import Count, Sum

MB = 1 << 20
STORE = 24 * MB
ROWS = 1_500_000  # of 24 bytes and more: half as much again as fits
BLOCKS = 12


@pytest.fixture(autouse=True)
def small_store(settings: DataContext) -> Iterator[None]:
    """A session whose store does not hold the rows, which all exist before the first is sorted."""
    settings.small_plan_bytes = settings.relational_plan_bytes = 0
    settings.target_max_block_size = 2 * MB
    settings.partition_bytes = 6 * MB
    settings.memory_budget = 8 * MB
    with skate.init(engine="local", num_cpus=2, object_store_memory=STORE):
        yield


def numbers() -> Any:
    """Rows whose key is in no order, and no key twice."""

    def mixed(batch: dict[str, Any]) -> dict[str, Any]:
        key = batch["id"] * 7_368_787 % ROWS  # a prime, so that every key comes once
        return {"key": key, "half": key // 2, "id": batch["id"]}

    return skate.data.range(ROWS, override_num_blocks=BLOCKS).map_batches(mixed, batch_size=None)


def test_sorting() -> None:
    place = 0
    for batch in numbers().sort("key").iter_batches(batch_size=None):
        keys = batch["key"]
        assert np.array_equal(keys, np.arange(place, place + len(keys)))
        assert np.array_equal(batch["id"] * 7_368_787 % ROWS, keys)
        place += len(keys)
    assert place == ROWS


def test_grouping_with_as_many_groups_as_rows() -> None:
    place = 0
    for batch in numbers().groupby("half").aggregate(Count(), Sum("key")).iter_batches(batch_size=None):
        halves = batch["half"]
        assert np.array_equal(halves, np.arange(place, place + len(halves)))
        assert np.all(batch["count()"] == 2)
        assert np.array_equal(batch["sum(key)"], 4 * halves + 1)
        place += len(halves)
    assert place == ROWS // 2


def test_joining_two_large_sides() -> None:
    ids = skate.data.range(ROWS, override_num_blocks=BLOCKS)
    seen = np.zeros(ROWS, bool)
    for batch in numbers().join(ids, "inner", 4, on=("key",), right_on=("id",)).iter_batches(batch_size=None):
        assert np.array_equal(batch["id"] * 7_368_787 % ROWS, batch["key"])
        assert not seen[batch["key"]].any()
        seen[batch["key"]] = True
    assert seen.all()


def test_shuffling() -> None:
    found = np.concatenate(
        # Copied, as arrays that are in use cannot be moved to disk.
        [batch["key"].copy() for batch in numbers().random_shuffle(seed=1).iter_batches(batch_size=None)]
    )
    assert not np.array_equal(found[:100], np.sort(found)[:100])
    assert np.array_equal(np.sort(found), np.arange(ROWS))
