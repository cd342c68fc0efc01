"""Batches for training loops: prefetching, formats and shuffling."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import skate
from skate.data import DataContext

pytestmark = pytest.mark.ray_more

torch = pytest.importorskip("torch")

IN_PROCESS_SECONDS = 60.0  # seconds after which something is wrong


class Prepared:
    """Counts batches as they are prepared, and lets others wait for a number of them."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = threading.Condition()

    def __call__(self, batch: dict[str, np.ndarray[Any, Any]]) -> Any:
        with self._changed:
            self.count += 1
            self._changed.notify_all()
        return torch.as_tensor(batch["id"].copy())

    def wait_for(self, count: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.count >= count, IN_PROCESS_SECONDS)


@pytest.mark.parametrize("ahead", [1, 3])
def test_batches_are_prepared_while_the_program_is_busy_with_another(where: str, ahead: int) -> None:
    prepared = Prepared()
    batches = iter(
        skate.data.range(100).iter_torch_batches(batch_size=10, prefetch_batches=ahead, collate_fn=prepared)
    )
    for taken in range(1, 6):
        next(batches)
        # As many as are to be ahead, and the one that waits for its place.
        assert prepared.wait_for(min(10, taken + ahead + 1))
    assert prepared.count <= 5 + ahead + 1
    batches.close()  # type: ignore[attr-defined]


def test_nothing_is_prepared_ahead_if_nobody_wants_it(where: str) -> None:
    prepared = Prepared()
    batches = iter(
        skate.data.range(100).iter_torch_batches(batch_size=10, prefetch_batches=0, collate_fn=prepared)
    )
    for taken in range(1, 4):
        next(batches)
        assert prepared.count == taken


def test_blocks_are_read_ahead_of_the_batches(engine: str, settings: DataContext) -> None:
    if engine == "inline":
        pytest.skip("nobody works while the program is busy")
    settings.small_plan_bytes = 0
    read = skate.remote(Counter).remote()

    def count(batch: dict[str, Any]) -> dict[str, Any]:
        skate.get(read.add.remote())
        return batch

    ds = skate.data.range(6, override_num_blocks=6).map_batches(count)
    batches = iter(ds.iter_batches(batch_size=1))
    next(batches)
    assert skate.get(read.reached.remote(6), timeout=IN_PROCESS_SECONDS), (
        "all blocks, while the first batch is in use"
    )
    assert [int(batch["id"][0]) for batch in batches] == [1, 2, 3, 4, 5]


class Counter:
    def __init__(self) -> None:
        import asyncio

        self._count = 0
        self._changed = asyncio.Condition()

    async def add(self) -> None:
        async with self._changed:
            self._count += 1
            self._changed.notify_all()

    async def reached(self, count: int) -> bool:
        async with self._changed:
            await self._changed.wait_for(lambda: self._count >= count)
        return True


def test_a_tensor_may_be_written_to_and_the_block_stays_as_it_is(where: str) -> None:
    ds = skate.data.range(4).materialize()
    for batch in ds.iter_torch_batches(batch_size=None):
        batch["id"] += 100
    assert [row["id"] for row in ds.take_all()] == [0, 1, 2, 3]


def test_a_column_of_nulls_is_a_tensor_of_nan(where: str) -> None:
    ds = skate.data.from_arrow(pa.table({"none": pa.nulls(3), "id": [1, 2, 3]}))
    [batch] = ds.iter_torch_batches()
    assert (batch["none"].shape, batch["none"].dtype) == ((3,), torch.float32)
    assert batch["none"].isnan().all()


def test_tensors_go_to_the_device_of_the_worker() -> None:
    import torch

    from skate.air import _worker_device

    ds = skate.data.range(4)
    _worker_device.use(torch.device("meta"))
    try:
        [batch] = ds.iter_torch_batches()
    finally:
        _worker_device.use(None)
    assert batch["id"].device.type == "meta"
    [batch] = ds.iter_torch_batches()
    assert batch["id"].device.type == "cpu"
