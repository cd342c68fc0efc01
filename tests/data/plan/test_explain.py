"""Plans as text: the steps, and what the source does itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skate
from skate.data import DataContext
from skate.data._dataset.explain import explain_plan
from skate.data._plan import estimates
from skate.data.expressions import col


@pytest.fixture
def folder(tmp_path: Path) -> str:
    pq.write_table(pa.table({"a": range(1000), "b": [0.5] * 1000, "c": range(1000)}), tmp_path / "x.parquet")
    return str(tmp_path)


def text(dataset: Any, **settings: Any) -> tuple[str, str]:
    """Return the plan as it was written, and as it will run."""
    before, _, after = explain_plan(dataset._node, DataContext(**settings)).partition("(Optimized)")
    return before, after


def test_the_filters_and_columns_that_a_source_takes_over_are_shown(folder: str) -> None:
    before, after = text(
        skate.data.read_parquet(folder).filter(expr=col("a") < 5).sort("b").select_columns(["a", "b"])
    )
    assert "ReadParquet  (1000 rows, about 23.4 KiB)" in before
    assert "Filter(col('a') < 5)" in before
    assert "ReadParquet[columns: a b, filter: col('a') < 5]  (at most about 15.6 KiB)" in after
    assert "Filter" not in after


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({}, "in this process"),
        ({"small_plan_bytes": 0}, "on threads of this process"),
        ({"small_plan_bytes": 0, "relational_plan_bytes": 0}, "on workers"),
    ],
)
def test_it_says_where_a_plan_runs(folder: str, settings: dict[str, int], place: str) -> None:
    assert f"runs {place} -" in text(skate.data.read_parquet(folder).sort("a"), **settings)[1]


def test_bytes_of_steps(folder: str) -> None:
    ds = skate.data.read_parquet(folder)
    whole = 24_000

    def size(dataset: Any) -> int | None:
        return estimates.output_bytes(dataset._node)

    assert size(ds) == size(ds.sort("a")) == size(ds.filter(expr=col("a") < 5)) == whole
    assert size(ds.limit(10)) == whole // 100
    assert size(ds.select_columns(["a"])) == whole // 3
    assert size(ds.union(ds)) == 2 * whole
    assert size(ds.map(lambda row: row)) is None, "only the function knows"
    assert size(ds.groupby("a").count()) is None
    assert size(ds.limit(0)) == 0
