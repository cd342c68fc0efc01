"""Schemas of plans that have not run are those of the rows that come out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import skate
from skate.data import Dataset
from skate.data.aggregate import AbsMax, AggregateFn, Count, Max, Mean, Min, Quantile, Std, Sum, Unique
from skate.data.expressions import col


def left() -> Dataset:
    return skate.data.from_items(
        [{"k": i % 2, "v": i, "f": float(i), "s": str(i), "t": np.ones(2)} for i in range(6)]
    )


def right() -> Dataset:
    return skate.data.from_items([{"k": i, "w": 2 * i} for i in range(3)])


PLANS: dict[str, Callable[[], Dataset]] = {
    "select": lambda: left().select_columns(["s", "t"]),
    "rename": lambda: left().rename_columns({"s": "text"}),
    "drop": lambda: left().drop_columns(["s"]),
    "with column": lambda: left().with_column("y", col("v") + 1.5),
    "filter": lambda: left().filter(lambda row: row["v"] > 1),
    "sort": lambda: left().select_columns(["v"]).sort("v").limit(2),
    "count": lambda: left().groupby("k").count(),
    "aggregate": lambda: (
        left()
        .groupby("k")
        .aggregate(
            Sum("v"),
            Mean("v"),
            Std("f"),
            Min("s"),
            Max("v"),
            Count(),
            Quantile("v"),
            Unique("v"),
            AbsMax("f"),
        )
    ),
    "inner join": lambda: left().join(right(), "inner", 2, on=("k",)),
    "full join": lambda: left().join(right(), "full_outer", 2, on=("k",)),
    "semi join": lambda: left().join(right(), "left_semi", 2, on=("k",)),
    "union": lambda: right().select_columns(["w"]).union(skate.data.from_items([{"w": 0.5}])),
}


@pytest.mark.parametrize("name", PLANS)
def test_the_schema_is_known_without_running_the_plan(name: str) -> None:
    dataset = PLANS[name]()
    known = dataset.schema(fetch_if_missing=False)
    assert known is not None
    assert dataset._last is None, "the plan has run"
    assert known == dataset.materialize().schema()
    skate.shutdown()


def test_what_only_a_run_can_tell_is_not_known() -> None:
    first = AggregateFn(
        init=lambda key: 0, merge=lambda a, b: a, accumulate_row=lambda a, row: a, name="first"
    )
    for unknown in (
        left().map(lambda row: row),
        left().groupby("k").aggregate(first),
        left().map(lambda row: row).select_columns(["nope"]),
        left().map(lambda row: row).union(right()),
    ):
        assert unknown.schema(fetch_if_missing=False) is None


def test_an_absent_column_is_found_where_the_columns_are_known() -> None:
    for call, columns in (
        ("select_columns", ["nope"]),
        ("drop_columns", ["nope"]),
        ("rename_columns", {"nope": "x"}),
    ):
        with pytest.raises(KeyError, match="nope"):
            getattr(left(), call)(columns)


def test_a_union_of_columns_without_a_common_type_is_refused() -> None:
    both = skate.data.from_items([{"a": 1}]).union(skate.data.from_items([{"a": "x"}]))
    for use in (lambda: both.take_all(), lambda: both.schema(), lambda: list(both.iter_rows())):
        with pytest.raises(ValueError, match=r"column 'a' is int64 in one block and string in another"):
            use()


def test_integers_and_floats_of_a_union_are_floats() -> None:
    both = skate.data.from_items([{"a": 1}]).union(skate.data.from_items([{"a": 1.5}]))
    assert [str(kind) for kind in checked(both.schema()).types] == ["double"]
    assert both.to_pandas()["a"].tolist() == [1.0, 1.5]
    assert both.sum("a") == 2.5


def checked(schema: Any) -> Any:
    assert schema is not None
    return schema


def test_a_plan_of_unknown_columns_is_shown_as_its_operations() -> None:
    numbers = skate.data.range(3)
    leaf = "Dataset(num_rows=3, schema={id: int64})"
    assert repr(numbers.map(abs)) == str(numbers.map(abs)) == f"Map(abs)\n+- {leaf}"
    assert repr(numbers.map_batches(abs).sort("id")) == f"Sort\n+- MapBatches(abs)\n   +- {leaf}"
    assert repr(skate.data.from_items([])) == "MaterializedDataset(num_rows=0, schema=Unknown schema)"


def test_tensors_are_shown_under_the_names_of_ray() -> None:
    def schema_of(*tensors: Any) -> str:
        return repr(
            skate.data.from_items([{"t": tensor} for tensor in tensors], override_num_blocks=1).schema()
        )

    assert "t       ArrowTensorTypeV2(shape=(2, 2), dtype=double)" in schema_of(np.ones((2, 2)))
    assert "ArrowVariableShapedTensorType(ndim=2, dtype=double)" in schema_of(
        np.ones((2, 2)), np.ones((1, 2))
    )


def test_take_needs_a_number_of_rows() -> None:
    assert skate.data.range(3).take(0) == []
    with pytest.raises(ValueError, match=r"a non-negative integer, got -1"):
        skate.data.range(3).take(-1)


def test_the_type_of_a_nodes_id_has_rays_name() -> None:
    assert skate.data.NodeIdStr is str
