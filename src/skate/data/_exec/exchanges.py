"""Exchanges of barrier operators: sort, shuffle, group, join, repartition.

Each exchange is a sequence of rounds of tasks (see `Barrier`). If all rows fit into the memory of one worker, one task
does everything with all processors. Otherwise a first round splits all blocks into partitions that fit, and the last
round has one task per partition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from skate.data._block import tables
from skate.data._exec.barrier_operators import Exchange, Round
from skate.data._exec.items import Item
from skate.data._exec.work import PartitionWork


@dataclass(frozen=True)
class PartitionSizes:
    """The sizes of the partitions of an exchange.

    Attributes:
        part: Maximum bytes of a partition.
        min_parts: Minimum number of partitions, for user functions that should run in parallel on small data too.
    """

    part: int
    min_parts: int = 1

    def parts(self, *inputs: Sequence[Item]) -> int:
        """Return the number of partitions for these items."""
        total = sum(item.bytes for items in inputs for item in items)
        rows = max((sum(item.rows for item in items) for items in inputs), default=0)
        return max(1, min(max(math.ceil(total / self.part), self.min_parts), rows))


def single_round(tasks: Round) -> Exchange:
    """Return the exchange with these tasks as its only round."""
    yield from ()
    return tasks


def single_task(work: PartitionWork) -> Callable[..., Exchange]:
    """Return the exchange in which one task gets all rows."""

    def exchange(*inputs: list[Item]) -> Exchange:
        return single_round([(work, tuple(map(len, inputs)), [item for items in inputs for item in items])])

    return exchange


def range_exchange(
    sample: PartitionWork,
    bounds: PartitionWork,
    cut: PartitionWork,
    finish: PartitionWork,
    sizes: PartitionSizes,
) -> Callable[[list[Item]], Exchange]:
    """Return the exchange that sorts rows: each partition has the rows between two bounds.

    Args:
        sample: Samples rows of a block.
        bounds: Computes the bounds from all samples; its argument is the number of partitions.
        cut: Partitions a block; its first input are the bounds.
        finish: Computes the result of a partition.
        sizes: The sizes of partitions.
    """

    def exchange(items: list[Item]) -> Exchange:
        items = _with_rows(items)
        parts = sizes.parts(items)
        if parts == 1:
            return [(finish, None, items)]
        samples = yield [(sample, None, [item]) for item in items]
        found = yield [(bounds, parts, [made for each in samples for made in each])]
        pieces = yield [(cut, None, [*found[0], item]) for item in items]
        # There may be fewer partitions than requested: rows with equal keys stay in one partition.
        return [(finish, None, _with_rows(part)) for part in zip(*pieces, strict=True)]

    return exchange


def hash_exchange(
    cuts: Sequence[PartitionWork], finish: PartitionWork, sizes: PartitionSizes, *, exactly: int | None = None
) -> Callable[..., Exchange]:
    """Return the exchange that partitions the rows of one or more inputs by a hash of their keys.

    Args:
        cuts: For each input, partitions a block; its argument is the number of partitions.
        finish: Computes the result of a partition; its argument is the number of blocks of each input.
        sizes: The sizes of partitions.
        exactly: The exact number of partitions, in place of `sizes`.
    """

    def exchange(*inputs: list[Item]) -> Exchange:
        parts = exactly or sizes.parts(*inputs)
        if parts == 1:
            return [(finish, tuple(map(len, inputs)), [item for items in inputs for item in items])]
        tasks: Round = [
            (cut, parts, [item]) for cut, items in zip(cuts, inputs, strict=True) for item in items
        ]
        made = yield tasks
        result: Round = []
        for part in range(parts):
            blocks, counts, place = [], [], 0
            for items in inputs:
                # An empty piece still carries the columns of its side.
                mine = _with_rows([pieces[part] for pieces in made[place : place + len(items)]])
                place += len(items)
                blocks.extend(mine)
                counts.append(len(mine))
            result.append((finish, tuple(counts), blocks))
        return result

    return exchange


def random_exchange(
    cut: PartitionWork, finish: PartitionWork, sizes: PartitionSizes
) -> Callable[[list[Item]], Exchange]:
    """Return the exchange that shuffles rows.

    Args:
        cut: Partitions a block at random; its argument is the number of partitions and the index of the block.
        finish: Shuffles a partition; its argument is the index of the partition.
        sizes: The sizes of partitions.
    """

    def exchange(items: list[Item]) -> Exchange:
        items = _with_rows(items)
        parts = sizes.parts(items)
        if parts == 1:
            return [(finish, 0, items)]
        pieces = yield [(cut, (parts, place), [item]) for place, item in enumerate(items)]
        return [(finish, part, [made[part] for made in pieces if made[part].rows]) for part in range(parts)]

    return exchange


def position_exchange(count: int, join: PartitionWork) -> Callable[[list[Item]], Exchange]:
    """Return the exchange that splits rows into `count` blocks of equal size, in order."""

    def exchange(items: list[Item]) -> Exchange:
        rows = sum(item.rows for item in items)
        ends = [rows * (place + 1) // count for place in range(count)]
        result: Round = []
        for cuts in split_items(items, ends):
            if len(cuts) == 1:
                result.append(cuts[0])
            elif cuts:
                result.append((join, None, cuts))
            else:
                result.extend(item.cut(0, 0) for item in items[:1])
        return single_round(result)

    return exchange


def split_items(items: Sequence[Item], ends: Sequence[int]) -> list[list[Item]]:
    """Split items at these row numbers, and drop the rows after the last."""
    result: list[list[Item]] = []
    waiting = list(reversed(_with_rows(items)))
    passed = 0
    for end in ends:
        cuts: list[Item] = []
        while waiting and passed < end:
            item = waiting.pop()
            rows = min(item.rows, end - passed)
            cuts.append(item.cut(0, rows))
            if rows < item.rows:
                waiting.append(item.cut(rows, item.rows))
            passed += rows
        result.append(cuts)
    return result


def _with_rows(items: Sequence[Item]) -> list[Item]:
    """Return the items that have rows; if none has, the first, for its columns."""
    return [item for item in items if item.rows] or list(items[:1])


def concatenate(blocks: Sequence[pa.Table], argument: Any) -> Iterator[pa.Table]:
    """Yield one block with the rows of all blocks."""
    yield tables.concat(list(blocks))
