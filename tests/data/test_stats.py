"""The statistics of a run."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest

import skate

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("where")]


def test_time_in_user_code_is_told_from_the_rest() -> None:
    def slow(batch: dict[str, Any]) -> dict[str, Any]:
        end = time.perf_counter() + 0.05
        while time.perf_counter() < end:
            pass
        return batch

    ds = skate.data.range(40, override_num_blocks=4).map_batches(slow, batch_size=10)
    ds.take_all()
    assert ds._last is not None
    [step] = [each for each in ds._last.stats.values() if each.tasks]
    assert step.user_seconds >= 0.2
    assert step.seconds >= step.user_seconds
    assert (step.tasks, step.rows) == (4, 40)


def test_every_step_is_named_in_the_order_of_the_plan() -> None:
    ds = skate.data.range(40, override_num_blocks=4).map(lambda row: row).sort("id", descending=True)
    ds.take_all()
    text = ds.stats()
    assert text.index("ReadRange->Map(<lambda>)") < text.index("Sort: ")
    assert "Waiting for blocks" in text


def test_blocks_that_were_there_are_named_too() -> None:
    ds = skate.data.from_arrow(pa.table({"a": [2, 1]})).sort("a")
    ds.take_all()
    text = ds.stats()
    assert "FromArrow: 1 blocks of 2 rows" in text
    assert text.index("FromArrow") < text.index("Sort: ")


def test_a_step_that_gets_its_rows_late_says_that_it_has_waited() -> None:
    def slow(row: dict[str, Any]) -> dict[str, Any]:
        end = time.perf_counter() + 0.05
        while time.perf_counter() < end:
            pass
        return row

    ds = skate.data.range(4, override_num_blocks=2).map(slow).sort("id")
    ds.take_all()
    assert ds._last is not None
    *_, last = ds._last.stats.values()
    assert last.name == "Sort"
    assert last.input_seconds >= 0.09
    assert "Waiting for input: " in ds.stats()
