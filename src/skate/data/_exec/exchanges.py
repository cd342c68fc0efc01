"""Operations that need all rows at once: sorting, shuffling, grouping, joining, repartitioning.

Each is a plan of rounds (see `Barrier`): given the items of its inputs, it asks for tasks and is told what they made.
As long as the rows fit into the memory of one worker, one task does all of it, with all processors. Otherwise the rows
are cut into parts that fit, which is a round over all blocks, and each part is a task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from skate.data._block import tables
from skate.data._exec.failures import FailedRows
from skate.data._exec.items import Item
from skate.data._exec.operators import Exchange, Round
from skate.data._exec.transforms import Transform, resize_blocks
from skate.data.context import DataContext


@dataclass(frozen=True)
class PartitionWork:
    """Work on all blocks of a part at once.

    Attributes:
        function: Given the blocks and the task's argument, returns blocks.
        block_size: Bytes of the largest blocks to make; None leaves them as they come.
        transforms: What is done afterwards in the same task.
        context: The settings of the dataset, which user code may ask for.
    """

    name: str
    function: Callable[[Sequence[pa.Table], Any], Iterator[pa.Table]]
    block_size: int | None = None
    transforms: tuple[Transform, ...] = ()
    context: DataContext | None = None

    def prepare(self) -> None:
        """Make the instances of the user's classes."""
        for transform in self.transforms:
            transform.prepare()

    def run(self, argument: Any, blocks: Sequence[pa.Table], index: int) -> Iterator[pa.Table | FailedRows]:
        """Yield what the function makes of the blocks."""
        made: Any = self.function(blocks, argument)
        for transform in self.transforms:
            made = transform.apply(made, index)
        return made if self.block_size is None else resize_blocks(made, self.block_size)


@dataclass(frozen=True)
class PartitionSizes:
    """How large the parts of an exchange are.

    Attributes:
        part: Bytes of rows that one task can work on.
        least_parts: For work that is the user's, and so worth more than one task however small the data.
    """

    part: int
    least_parts: int = 1

    def parts(self, *inputs: Sequence[Item]) -> int:
        """Return into how many parts these items are cut."""
        total = sum(item.bytes for items in inputs for item in items)
        rows = max((sum(item.rows for item in items) for items in inputs), default=0)
        return max(1, min(max(math.ceil(total / self.part), self.least_parts), rows))


def single_round(tasks: Round) -> Exchange:
    """Return the exchange that needs no round before its last."""
    yield from ()
    return tasks


def single_task(work: PartitionWork) -> Callable[..., Exchange]:
    """Return the exchange that needs no parts: one task gets all rows."""

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
    """Return the exchange that brings rows into an order: each part has the rows between two bounds.

    Args:
        sample: Makes a few rows of a block.
        bounds: Makes the rows at the bounds out of all samples; its argument is the number of parts.
        cut: Makes the parts of a block, whose bounds come before it.
        finish: Makes the result of a part.
        sizes: How large a part is.
    """

    def exchange(items: list[Item]) -> Exchange:
        items = _with_rows(items)
        parts = sizes.parts(items)
        if parts == 1:
            return [(finish, None, items)]
        samples = yield [(sample, None, [item]) for item in items]
        found = yield [(bounds, parts, [made for each in samples for made in each])]
        pieces = yield [(cut, None, [*found[0], item]) for item in items]
        # There may be fewer parts than asked for: rows with the same keys are never parted.
        return [(finish, None, _with_rows(part)) for part in zip(*pieces, strict=True)]

    return exchange


def hash_exchange(
    cuts: Sequence[PartitionWork], finish: PartitionWork, sizes: PartitionSizes, *, exactly: int | None = None
) -> Callable[..., Exchange]:
    """Return the exchange that brings rows of equal keys together, of one or more inputs.

    Args:
        cuts: For each input: makes the parts of a block; its argument is the number of parts.
        finish: Makes the result of a part; its argument says how many blocks of each input it gets.
        sizes: How large a part is.
        exactly: How many parts there have to be, instead.
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
                # An empty piece still tells the columns of its side.
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
    """Return the exchange that brings rows into a random order.

    Args:
        cut: Makes random parts of a block; its argument is the number of parts and the place of the block.
        finish: Makes a random order of a part; its argument is the place of the part.
        sizes: How large a part is.
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
    """Return the exchange that cuts rows into `count` blocks of equal size, in their order."""

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
    """Return the items cut where these numbers of rows have passed; what is after the last of them is left out."""
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
    """Return the items that have rows; if there is none, the first, for its columns."""
    return [item for item in items if item.rows] or list(items[:1])


def concatenate(blocks: Sequence[pa.Table], argument: Any) -> Iterator[pa.Table]:
    """Yield the blocks as one."""
    yield tables.concat(list(blocks))
