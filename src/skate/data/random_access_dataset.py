"""Random access to the rows of a dataset by key, from any number of processes."""

from __future__ import annotations

import bisect
import itertools
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import skate
from skate.data._arguments import POSITIVE, checked
from skate.data._block import rows
from skate.data._exec.worker import with_preloading

if TYPE_CHECKING:
    from skate.data.dataset import Dataset

__all__ = ["RandomAccessDataset"]


class RandomAccessDataset:
    """Looks up rows by key; `Dataset.to_random_access_dataset` creates it.

    The rows are sorted by key and stay in shared memory, which all workers map: a lookup is a binary search in one
    worker.
    """

    @checked(num_workers=POSITIVE)
    def __init__(self, ds: Dataset, key: str, num_workers: int) -> None:
        there = ds.columns() or []
        if key not in there:
            raise ValueError(f"cannot look up rows by the column {key!r}: the dataset has {there}")
        begun = time.perf_counter()
        bundles = ds.sort(key).iter_internal_ref_bundles()
        self._blocks = [bundle.block_refs[0] for bundle in bundles if bundle.num_rows()]
        last_key = _last_key.options(**with_preloading({}))
        self._largest = skate.get([last_key.remote(block, key) for block in self._blocks])
        worker_class = skate.remote(_Worker).options(**with_preloading({"num_cpus": 0}))
        workers = [worker_class.remote(key, self._blocks) for _ in range(num_workers)]
        skate.get([worker.stats.remote() for worker in workers])  # wait until all have started
        self._workers = workers
        self._turns = itertools.cycle(workers)
        self._build_seconds = time.perf_counter() - begun

    def get_async(self, key: Any) -> Any:
        """Return a reference to the row with this key, or to None."""
        block = self._find_block(key)
        if block is None:
            return skate.put(None)
        return next(self._turns).get.remote(block, key)

    def multiget(self, keys: list[Any]) -> list[dict[str, Any] | None]:
        """Return the row of each key, or None."""
        together: dict[int, list[Any]] = defaultdict(list)
        for key in keys:
            block = self._find_block(key)
            if block is not None:
                together[block].append(key)
        asked = {block: next(self._turns).multiget.remote(block, some) for block, some in together.items()}
        found: dict[Any, Any] = {}
        for block, reference in asked.items():
            found.update(zip(together[block], skate.get(reference), strict=True))
        return [found.get(key) for key in keys]

    def stats(self) -> str:
        """Return the number and mean time of accesses as text."""
        each = skate.get([worker.stats.remote() for worker in self._workers])
        calls = [count for count, _ in each]
        mean = sum(seconds for _, seconds in each) / max(1, sum(calls))
        return (
            "RandomAccessDataset:\n"
            f"- Build time: {self._build_seconds:.2f}s\n"
            f"- Num workers: {len(each)}\n"
            f"- Blocks: {len(self._blocks)}, in every worker\n"
            f"- Accesses per worker: {min(calls)} min, {max(calls)} max, {sum(calls) // len(calls)} mean\n"
            f"- Mean access time: {mean * 1e6:.0f}us\n"
        )

    def _find_block(self, key: Any) -> int | None:
        """Return the index of the only block that may contain a key; None if it is beyond the last."""
        place = bisect.bisect_left(self._largest, key)
        return place if place < len(self._largest) else None


@skate.remote
def _last_key(block: pa.Table, key: str) -> Any:
    column = block.column(key)
    return column[len(column) - 1].as_py()


class _Worker:
    """Looks up rows in sorted blocks."""

    def __init__(self, key: str, blocks: list[Any]) -> None:
        self._key = key
        self._blocks: list[pa.Table] = skate.get(blocks)
        self._calls = 0
        self._seconds = 0.0

    def get(self, block: int, key: Any) -> dict[str, Any] | None:
        return self.multiget(block, [key])[0]

    def multiget(self, block: int, keys: list[Any]) -> list[dict[str, Any] | None]:
        begun = time.perf_counter()
        table = self._blocks[block]
        column = table.column(self._key)
        found = []
        for key in keys:
            place = bisect.bisect_left(range(table.num_rows), key, key=lambda row: column[row].as_py())
            there = place < table.num_rows and column[place].as_py() == key
            found.append(next(rows.to_rows(table.slice(place, 1))) if there else None)
        self._calls += 1
        self._seconds += time.perf_counter() - begun
        return found

    def stats(self) -> tuple[int, float]:
        return self._calls, self._seconds
