"""Aggregate tables for tests, in blocks and steps as the engine does."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from skate.data import aggregate as agg
from skate.data._block import tables
from skate.data._kernels import grouping


def run(
    table: pa.Table, keys: Sequence[str], aggs: Sequence[agg.AggregateFn], cuts: Sequence[int] = ()
) -> pa.Table:
    """Aggregate a table that comes in blocks, and is combined in two steps."""
    edges = [0, *sorted(min(cut, table.num_rows) for cut in cuts), table.num_rows]
    blocks = [table.slice(start, stop - start) for start, stop in itertools.pairwise(edges)]
    states = [grouping.partial_aggregate(block, keys, aggs) for block in blocks]
    early = grouping.combine(tables.concat(states[:2]), keys, aggs)
    combined = grouping.combine(tables.concat([early, *states[2:]]), keys, aggs)
    result = grouping.finalize(combined, keys, aggs)
    result.validate(full=True)
    return result


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert isinstance(found, list)
        assert len(found) == len(expected)
        for mine, its in zip(found, expected, strict=True):
            assert_same(mine, its)
    elif is_nan(expected):
        assert is_nan(found)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
    else:
        assert found == expected


def mean_by_hand(on: str, name: str) -> agg.AggregateFn:
    return agg.AggregateFn(
        init=lambda key: [0, 0],
        accumulate_row=lambda state, row: [state[0] + row[on], state[1] + 1],
        merge=lambda one, other: [one[0] + other[0], one[1] + other[1]],
        finalize=lambda state: state[0] / state[1],
        name=name,
    )
