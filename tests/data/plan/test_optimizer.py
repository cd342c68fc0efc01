"""Optimized plans give the same rows with less work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skate
from skate.data._plan import estimates, nodes
from skate.data._plan.optimizer import optimize
from skate.data.aggregate import AggregateFn, Count, Mean
from skate.data.expressions import col, random


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A Parquet file with three row groups."""
    rows = pa.table({"a": range(30), "b": [f"text {i}" for i in range(30)], "c": [i / 2 for i in range(30)]})
    pq.write_table(rows, tmp_path / "table.parquet", row_group_size=10)
    return str(tmp_path)


def plan(dataset: Any) -> list[str]:
    """Return what an optimize plan does, from its end to its source."""
    node = optimize(dataset._node)
    titles = []
    while True:
        titles.append(type(node).__name__)
        if not node.inputs:
            return titles
        node = node.inputs[0]


def source(dataset: Any) -> Any:
    return next(node for node in optimize(dataset._node).walk() if isinstance(node, nodes.Read)).source


def test_a_filter_goes_into_the_source(table: str) -> None:
    ds = skate.data.read_parquet(table).filter(expr="a > 25")
    assert plan(ds) == ["Read"]
    assert [row["a"] for row in ds.take_all()] == [26, 27, 28, 29]


def test_filters_are_joined_and_go_below_sorts_and_shuffles(table: str) -> None:
    ds = skate.data.read_parquet(table).sort("c").filter(expr="a > 5").random_shuffle().filter(expr="a < 8")
    assert plan(ds) == ["Shuffle", "Sort", "Read"]
    assert sorted(row["a"] for row in ds.take_all()) == [6, 7]


def test_a_filter_goes_below_renamed_columns(table: str) -> None:
    ds = skate.data.read_parquet(table)
    renamed = ds._with_node(nodes.Project(ds._node, (col("a").alias("number"), col("c")))).filter(
        expr="number >= 28"
    )
    assert plan(renamed) == ["Project", "Read"]
    assert [row["number"] for row in renamed.take_all()] == [28, 29]


def test_a_filter_on_a_computed_column_stays_where_it_is(table: str) -> None:
    ds = skate.data.read_parquet(table).with_column("d", col("a") * 2).filter(expr="d > 55")
    assert plan(ds) == ["Filter", "Project", "Read"]
    assert [row["d"] for row in ds.take_all()] == [56, 58]


def test_a_filter_goes_to_every_part_of_a_union(table: str) -> None:
    ds = skate.data.read_parquet(table).union(skate.data.read_parquet(table)).filter(expr="a == 3")
    node = optimize(ds._node)
    assert isinstance(node, nodes.Union)
    assert all(isinstance(part, nodes.Read) for part in node.inputs)
    assert ds.count() == 2


def test_a_filter_that_draws_at_random_does_not_move(table: str) -> None:
    ds = skate.data.read_parquet(table).sort("a").filter(expr=random() > 0.5)
    assert plan(ds) == ["Filter", "Sort", "Read"]


def test_an_expression_is_tried_before_a_function(table: str) -> None:
    seen = []

    def noted(row: dict[str, Any]) -> bool:
        seen.append(row["a"])
        return True

    ds = skate.data.read_parquet(table).filter(noted).filter(expr="a >= 28")
    assert plan(ds) == ["EachRow", "Read"]
    ds.take_all()
    assert seen == [28, 29]


def test_a_filter_does_not_pass_a_function_that_makes_rows(table: str) -> None:
    ds = skate.data.read_parquet(table).map(lambda row: {"a": -row["a"]}).filter(expr="a < -28")
    assert plan(ds) == ["Filter", "EachRow", "Read"]
    assert ds.take_all() == [{"a": -29}]


def test_a_limit_goes_below_what_makes_one_row_of_each(table: str) -> None:
    ds = skate.data.read_parquet(table).map(lambda row: row).with_column("d", col("a")).limit(7).limit(3)
    assert plan(ds) == ["Project", "EachRow", "Limit", "Read"]
    assert ds.count() == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda ds: ds.filter(lambda row: row["a"] > 5),
        lambda ds: ds.flat_map(lambda row: [row, row]),
        lambda ds: ds.map(lambda row: row, on_error="drop"),
        lambda ds: ds.sort("a", descending=True),
    ],
)
def test_a_limit_stays_above_what_does_not(table: str, change: Any) -> None:
    ds = change(skate.data.read_parquet(table))
    assert plan(ds.limit(2))[0] == "Limit"
    assert ds.limit(2).take_all() == ds.take_all()[:2]


@pytest.mark.parametrize(
    ("change", "columns"),
    [
        (lambda ds: ds.select_columns(["c"]), ["c"]),
        (lambda ds: ds.select_columns(["c", "a"]).sort("a"), ["a", "c"]),
        (lambda ds: ds.sort("a").select_columns(["c"]), ["a", "c"]),
        (lambda ds: ds.groupby("b").mean("c"), ["b", "c"]),
        (lambda ds: ds.groupby("b").count(), ["b"]),
        (lambda ds: ds.with_column("d", col("a") + 1).select_columns(["d"]), ["a"]),
        (lambda ds: ds.map(lambda row: row).select_columns(["c"]), ["a", "b", "c"]),
        (lambda ds: ds, ["a", "b", "c"]),
    ],
)
def test_only_columns_that_are_needed_are_read(table: str, change: Any, columns: list[str]) -> None:
    ds = change(skate.data.read_parquet(table))
    assert sorted(source(ds).schema().names) == columns
    assert ds.take_all()


def test_an_aggregate_of_the_users_gets_whole_rows(table: str) -> None:
    longest = AggregateFn(
        init=lambda key: 0,
        accumulate_row=lambda most, row: max(most, len(row["b"])),
        merge=max,
        name="longest",
    )
    ds = skate.data.read_parquet(table)
    assert ds.aggregate(longest, Mean("c"), Count())["longest"] == 7


def test_rows_are_counted_without_reading_where_that_is_known(table: str) -> None:
    ds = skate.data.read_parquet(table)
    for same in (ds, ds.map(lambda row: row), ds.sort("a"), ds.select_columns(["a"]), ds.repartition(3)):
        assert estimates.row_count(same._node) == 30
    assert estimates.row_count(ds.limit(4)._node) == 4
    assert estimates.row_count(ds.union(ds)._node) == 60
    assert estimates.row_count(ds.filter(expr="a > 3")._node) is None
    assert ds.filter(expr="a > 3").count() == 26
