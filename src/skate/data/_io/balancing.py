"""Divide read work into ranges of about the same size, and merge small blocks."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa

from skate.data._block import tables

Element = TypeVar("Element")

DEFAULT_BLOCK_BYTES = 128 << 20
_MAX_CHUNKS = 8


def balance(elements: Sequence[Element], weights: Sequence[int], parts: int) -> list[list[Element]]:
    """Return consecutive groups of about the same weight; none is empty.

    >>> balance("abcd", [1, 1, 1, 3], 2)
    [['a', 'b', 'c'], ['d']]
    """
    parts = max(1, min(parts, len(elements)))
    # Every element has a weight of at least 1, so that empty files are distributed too.
    sums = list(itertools.accumulate(weight + 1 for weight in weights))
    runs: list[list[Element]] = []
    start = 0
    for part in range(1, parts + 1):
        if part == parts:
            stop = len(elements)
        else:
            goal = sums[-1] * part / parts
            # The boundary nearest to the goal that leaves an element on both sides.
            stop = bisect.bisect_left(sums, goal) + 1
            if stop - 1 > start and goal - sums[stop - 2] < sums[stop - 1] - goal:
                stop -= 1
            stop = max(start + 1, min(stop, len(elements) - (parts - part)))
        runs.append(list(elements[start:stop]))
        start = stop
    return [run for run in runs if run]


def merge_small(blocks: Iterable[pa.Table], target: int | None) -> Iterator[pa.Table]:
    """Yield blocks of at least a quarter of the target size, merged from smaller ones; large blocks pass unchanged."""
    enough = (target if target is not None else DEFAULT_BLOCK_BYTES) // 4
    waiting: list[pa.Table] = []
    size = 0
    for block in blocks:
        if block.num_rows == 0 and waiting:
            continue
        if waiting and waiting[0].num_rows == 0:
            waiting.clear()
        waiting.append(block)
        size += tables.nbytes(block)
        if size >= enough:
            yield _concat(waiting)
            waiting, size = [], 0
    if waiting:
        yield _concat(waiting)


def _concat(blocks: list[pa.Table]) -> pa.Table:
    if len(blocks) == 1:
        return blocks[0]
    block = tables.concat(blocks)
    # Hundreds of chunks, such as one per image, would slow down every later step.
    return tables.combine(block) if len(blocks) > _MAX_CHUNKS else block
