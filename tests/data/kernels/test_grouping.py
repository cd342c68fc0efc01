from __future__ import annotations

import statistics
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skate.data import aggregate as agg
from skate.data._block import tables
from skate.data._kernels import grouping
from tests.data.kernels.aggregating import assert_same, is_nan, mean_by_hand, run
from tests.data.kernels.support import (
    KEY_VALUES,
    NAN,
    assert_rows,
    column,
    comparable,
    identity,
    in_order,
    key_rows,
    row_numbers,
)
from tests.data.kernels.support import tables as drawn_tables


def numbers(values: list[Any], ignore_nulls: bool) -> list[Any] | None:
    """Return what is left to compute with, or None if a null spoils it."""
    if not ignore_nulls and None in values:
        return None
    return [value for value in values if value is not None]


def expected_sum(values: list[Any], ignore_nulls: bool) -> Any:
    kept = numbers(values, ignore_nulls)
    return sum(kept) if kept else None


def expected_mean(values: list[Any], ignore_nulls: bool) -> Any:
    kept = numbers(values, ignore_nulls)
    return sum(kept) / len(kept) if kept else None


def expected_std(values: list[Any], ignore_nulls: bool) -> Any:
    kept = numbers(values, ignore_nulls)
    if not kept:
        return None
    return NAN if len(kept) < 2 or any(map(is_nan, kept)) else statistics.stdev(kept)


def expected_extreme(pick: Callable[[list[Any]], Any]) -> Callable[[list[Any], bool], Any]:
    def expected(values: list[Any], ignore_nulls: bool) -> Any:
        kept = numbers(values, ignore_nulls)
        if not kept:
            return None
        plain = [value for value in kept if not is_nan(value)]
        return pick(plain) if plain else NAN

    return expected


def expected_median(values: list[Any], ignore_nulls: bool) -> Any:
    kept = numbers(values, ignore_nulls)
    plain = [value for value in kept or [] if not is_nan(value)]
    return float(statistics.median(plain)) if plain else None


def expected_unique(values: list[Any], ignore_nulls: bool) -> list[Any]:
    first: dict[Any, Any] = {}
    for value in values:
        if value is not None or not ignore_nulls:
            first.setdefault(comparable(value), value)
    return list(first.values())


NUMERIC = {
    agg.Sum: expected_sum,
    agg.Mean: expected_mean,
    agg.Std: expected_std,
    agg.Min: expected_extreme(min),
    agg.Max: expected_extreme(max),
    agg.AbsMax: expected_extreme(lambda values: max(map(abs, values))),
    agg.Quantile: expected_median,
}
ANY = {
    agg.Count: lambda values, ignore: len([value for value in values if value is not None or not ignore]),
    agg.AsList: lambda values, ignore: [value for value in values if value is not None or not ignore],
    agg.Unique: expected_unique,
    agg.CountDistinct: lambda values, ignore: len(expected_unique(values, ignore)),
}
ORDERED = {agg.Min: expected_extreme(min), agg.Max: expected_extreme(max)}


@st.composite
def grouped_values(
    draw: st.DrawFn, kinds: dict[str, tuple[pa.DataType, list[Any]]]
) -> tuple[pa.Table, list[int]]:
    rows = draw(st.integers(0, 10))
    kind = draw(st.sampled_from(list(kinds)))
    key_kind = draw(st.sampled_from(list(KEY_VALUES)))
    keys = draw(st.lists(st.sampled_from(KEY_VALUES[key_kind][1]), min_size=rows, max_size=rows))
    values = draw(st.lists(st.sampled_from(kinds[kind][1]), min_size=rows, max_size=rows))
    made = column(kind, values) if kinds is KEY_VALUES else pa.array(values, kinds[kind][0])
    cuts = draw(st.lists(st.integers(0, rows), max_size=3))
    return pa.table({"key": column(key_kind, keys), "x": made}), cuts


NUMBER_KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int16(), [-5, 0, 3, 300, None]),
    "unsigned": (pa.uint8(), [0, 7, 255, None]),
    "float": (pa.float64(), [-2.5, -0.0, 0.0, 1e9, NAN, None]),
    "float32": (pa.float32(), [-2.5, 1.0, None]),
    "null": (pa.null(), [None]),
}


@settings(deadline=None)
@given(grouped_values(NUMBER_KINDS), st.sampled_from(list(NUMERIC)), st.booleans(), st.booleans())
def test_aggregations_of_numbers_agree_with_python(
    drawn: tuple[pa.Table, list[int]], kind: Any, ignore_nulls: bool, with_key: bool
) -> None:
    check_against_python(drawn, kind, NUMERIC[kind], ignore_nulls, with_key)


@settings(deadline=None)
@given(grouped_values(KEY_VALUES), st.sampled_from([*ANY]), st.booleans(), st.booleans())
def test_aggregations_of_any_values_agree_with_python(
    drawn: tuple[pa.Table, list[int]], kind: Any, ignore_nulls: bool, with_key: bool
) -> None:
    check_against_python(drawn, kind, ANY[kind], ignore_nulls, with_key)


@settings(deadline=None)
@given(grouped_values(KEY_VALUES), st.sampled_from([*ORDERED]), st.booleans())
def test_extremes_of_any_ordered_values_agree_with_python(
    drawn: tuple[pa.Table, list[int]], kind: Any, ignore_nulls: bool
) -> None:
    result = check_against_python(drawn, kind, ORDERED[kind], ignore_nulls, with_key=True)
    values = drawn[0].schema.field("x").type
    assert result.schema.field(1).type == (values.value_type if pa.types.is_dictionary(values) else values)


def check_against_python(
    drawn: tuple[pa.Table, list[int]], kind: Any, expected: Any, ignore_nulls: bool, with_key: bool
) -> pa.Table:
    table, cuts = drawn
    keys = ["key"] if with_key else []
    result = run(table, keys, [kind(on="x", ignore_nulls=ignore_nulls, alias_name="result")], cuts)
    groups: dict[Any, list[Any]] = {} if with_key else {(): []}
    for key, value in zip(
        key_rows(table, keys) if with_key else [()] * table.num_rows, table["x"].to_pylist(), strict=True
    ):
        groups.setdefault(identity(key), []).append(value)
    assert result.num_rows == len(groups)
    for row in result.to_pylist():
        assert_same(
            row["result"], expected(groups[identity((row["key"],) if with_key else ())], ignore_nulls)
        )
    return result


@settings(deadline=None)
@given(drawn_tables())
def test_groups_are_the_rows_with_equal_keys_in_the_order_of_the_keys(table: pa.Table) -> None:
    keys = ["k0", "k1"]
    found = list(grouping.groups(table, keys))
    for group in found:
        assert_rows(group, table, row_numbers(group))
        assert len({identity(key) for key in key_rows(group, keys)}) == 1
    assert [row for group in found for row in row_numbers(group)] == in_order(
        key_rows(table, keys), [False, False]
    )
    assert len(found) == len({identity(key) for key in key_rows(table, keys)})


@settings(deadline=None)
@given(drawn_tables())
def test_distinct_keys_come_in_the_order_of_their_first_appearance(table: pa.Table) -> None:
    keys = ["k0", "k1"]
    distinct = grouping.unique(table, keys)
    assert distinct.schema.equals(table.select(keys).schema)
    found = [identity(key) for key in key_rows(distinct, keys)]
    assert found == list(dict.fromkeys(identity(key) for key in key_rows(table, keys)))


@settings(deadline=None)
@given(drawn_tables())
def test_results_come_in_the_order_of_the_keys_with_their_types(table: pa.Table) -> None:
    result = run(table, ["k0", "k1"], [agg.Count()], [3, 5])
    assert result.select(["k0", "k1"]).schema.equals(table.select(["k0", "k1"]).schema)
    keys = key_rows(result, ["k0", "k1"])
    assert in_order(keys, [False, False]) == list(range(len(keys)))


def test_without_keys_a_group_of_no_rows_is_a_group() -> None:
    empty = pa.table({"x": pa.array([], pa.int64())})
    kinds = [agg.Count(), *(kind("x") for kind in NUMERIC), agg.Unique("x"), agg.CountDistinct("x")]
    row = run(empty, [], kinds).to_pylist()[0]
    assert row.pop("count()") == 0
    assert row.pop("unique(x)") == []
    assert row.pop("count_distinct(x)") == 0
    assert set(row.values()) == {None}


def test_with_keys_no_rows_are_no_groups() -> None:
    empty = pa.table({"k": pa.array([], pa.string()), "x": pa.array([], pa.int64())})
    result = run(empty, ["k"], [agg.Sum("x"), agg.AsList("x"), mean_by_hand("x", "custom")])
    assert result.num_rows == 0
    assert result.column_names == ["k", "sum(x)", "list(x)", "custom"]


def test_a_block_of_nothing_has_no_groups_or_one_without_rows() -> None:
    aggs = [agg.Count(), agg.Sum("x"), agg.AsList("x"), mean_by_hand("x", "by hand")]
    assert run(pa.table({}), ["k"], aggs).num_rows == 0
    assert run(pa.table({}), [], aggs[:3]).to_pylist() == [{"count()": 0, "sum(x)": None, "list(x)": []}]
    blocks = [pa.table({}), pa.table({"k": ["a"], "x": [1]})]
    states = tables.concat([grouping.partial_aggregate(block, ["k"], aggs) for block in blocks])
    assert grouping.finalize(grouping.combine(states, ["k"], aggs), ["k"], aggs).to_pylist() == [
        {"k": "a", "count()": 1, "sum(x)": 1, "list(x)": [1], "by hand": 1.0}
    ]


def test_names_say_what_was_computed() -> None:
    kinds: list[agg.AggregateFn] = [kind("x") for kind in (*NUMERIC, *ANY)]
    kinds += [agg.Count(), agg.ValueCounter("x"), agg.MissingValuePercentage("x"), agg.ZeroPercentage("x")]
    assert run(pa.table({"x": [1]}), [], kinds).column_names == [
        "sum(x)",
        "mean(x)",
        "std(x)",
        "min(x)",
        "max(x)",
        "abs_max(x)",
        "quantile(x)",
        "count(x)",
        "list(x)",
        "unique(x)",
        "count_distinct(x)",
        "count()",
        "value_counter(x)",
        "missing_pct(x)",
        "zero_pct(x)",
    ]


def test_a_name_that_is_taken_gets_a_number() -> None:
    aggs = [agg.Sum("x"), agg.Sum("x"), agg.Max("x", alias_name="k"), agg.Sum("x")]
    result = run(pa.table({"k": [1], "x": [2]}), ["k"], aggs)
    assert result.to_pylist() == [{"k": 1, "sum(x)": 2, "sum(x)_2": 2, "k_2": 2, "sum(x)_3": 2}]


def test_keys_named_like_our_own_columns_do_no_harm() -> None:
    keys = ["state 0 sum", "row", "0", "_state"]
    table = pa.table({**{name: [1, 1, 2] for name in keys}, "x": [1, 2, 3]})
    result = run(table, keys, [agg.Sum("x"), agg.AsList("x")], [1])
    assert result.to_pylist() == [
        {**dict.fromkeys(keys, 1), "sum(x)": 3, "list(x)": [1, 2]},
        {**dict.fromkeys(keys, 2), "sum(x)": 3, "list(x)": [3]},
    ]


def test_small_integers_are_summed_without_overflow() -> None:
    table = pa.table({"x": pa.array([127] * 100, pa.int8()), "y": pa.array([2**31 - 1] * 100, pa.int32())})
    row = run(table, [], [agg.Sum("x"), agg.Sum("y"), agg.Mean("y")], [50]).to_pylist()[0]
    assert row == {"sum(x)": 12_700, "sum(y)": 100 * (2**31 - 1), "mean(y)": 2**31 - 1}


def test_the_absolute_value_of_the_smallest_integer_fits() -> None:
    assert run(pa.table({"x": pa.array([-128], pa.int8())}), [], [agg.AbsMax("x")]).to_pylist() == [
        {"abs_max(x)": 128}
    ]


def test_decimals_stay_decimals() -> None:
    table = pa.table({"x": pa.array([Decimal("1.10"), None, Decimal("-2.20")], pa.decimal128(5, 2))})
    row = run(table, [], [agg.Sum("x"), agg.Min("x"), agg.Mean("x")], [1]).to_pylist()[0]
    assert row == {"sum(x)": Decimal("-1.10"), "min(x)": Decimal("-2.20"), "mean(x)": pytest.approx(-0.55)}


def test_the_deviation_of_large_numbers_close_together_keeps_its_digits() -> None:
    values = [1e9 + i for i in range(100)]
    row = run(
        pa.table({"x": values}), [], [agg.Std("x"), agg.Std("x", ddof=0, alias_name="all")], [7, 50]
    ).to_pylist()[0]
    assert row["std(x)"] == pytest.approx(statistics.stdev(range(100)), rel=1e-9)
    assert row["all"] == pytest.approx(statistics.pstdev(range(100)), rel=1e-9)


@pytest.mark.parametrize(("q", "expected"), [(0, 1.0), (0.1, 1.4), (0.5, 3.0), (1, 5.0)])
def test_quantiles_lie_on_the_line_between_two_values(q: float, expected: float) -> None:
    table = pa.table({"x": [5, None, 1, 2, 3, 4]})
    assert run(table, [], [agg.Quantile("x", q=q)], [2]).to_pylist() == [
        {"quantile(x)": pytest.approx(expected)}
    ]


def test_percentages() -> None:
    table = pa.table({"x": [0.0, 1.0, NAN, None]})
    aggs = [
        agg.MissingValuePercentage("x"),
        agg.ZeroPercentage("x"),
        agg.ZeroPercentage("x", ignore_nulls=False, alias_name="of all"),
    ]
    row = run(table, [], aggs, [1]).to_pylist()[0]
    assert row == {"missing_pct(x)": 50.0, "zero_pct(x)": pytest.approx(100 / 3), "of all": 25.0}


def test_value_counts_add_up_over_blocks() -> None:
    table = pa.table({"k": [1, 1, 2, 1], "x": ["a", None, "a", "a"]})
    assert run(table, ["k"], [agg.ValueCounter("x")], [1, 3]).to_pylist() == [
        {"k": 1, "value_counter(x)": {"values": ["a", None], "counts": [2, 1]}},
        {"k": 2, "value_counter(x)": {"values": ["a"], "counts": [1]}},
    ]


def test_values_that_polars_cannot_hold_are_collected_and_counted() -> None:
    image = pa.FixedShapeTensorArray.from_numpy_ndarray(np.array([[1.0, 2.0], [1.0, 2.0], [3.0, 4.0]]))
    table = pa.table({"k": [1, 1, 1], "items": [[1], None, [1]], "image": image, "pair": [{"a": 1}] * 3})
    aggs: list[agg.AggregateFn] = [
        agg.Unique("items"),
        agg.Count("items", ignore_nulls=True),
        agg.CountDistinct("image"),
        agg.AsList("image"),
        agg.CountDistinct("pair"),
        agg.MissingValuePercentage("items"),
    ]
    result = run(table, ["k"], aggs, [1])
    assert result["list(image)"].type.value_type == image.type
    assert result.drop_columns(["list(image)"]).to_pylist() == [
        {
            "k": 1,
            "unique(items)": [[1], None],
            "count(items)": 2,
            "count_distinct(image)": 2,
            "count_distinct(pair)": 1,
            "missing_pct(items)": pytest.approx(100 / 3),
        }
    ]


def test_the_elements_of_lists_can_be_what_is_distinct() -> None:
    table = pa.table({"x": [["a", "b", "c"], ["a", "a", None], None, []]})
    aggs = [
        agg.Unique("x", encode_lists=True, alias_name="all"),
        agg.Unique(
            "x", encode_lists=agg.Unique.ListEncodingMode.FLATTEN, ignore_nulls=True, alias_name="some"
        ),
        agg.Unique("x", encode_lists=False, alias_name="lists"),
    ]
    assert run(table, [], aggs, [1]).to_pylist() == [
        {
            "all": ["a", "b", "c", None],
            "some": ["a", "b", "c"],
            "lists": [["a", "b", "c"], ["a", "a", None], None, []],
        }
    ]


def test_blocks_of_nulls_without_a_type_go_with_the_others() -> None:
    blocks = [pa.table({"k": [None, "a"], "x": pa.nulls(2)}), pa.table({"k": pa.nulls(1), "x": pa.nulls(1)})]
    blocks.append(pa.table({"k": ["a", None], "x": pa.array([1.5, 2.5])}))
    aggs = [
        agg.Sum("x"),
        agg.Min("x"),
        agg.AsList("x"),
        agg.Mean("x"),
        agg.Unique("x"),
        agg.ValueCounter("x"),
    ]
    states = tables.concat([grouping.partial_aggregate(block, ["k"], aggs) for block in blocks])
    rows = grouping.finalize(grouping.combine(states, ["k"], aggs), ["k"], aggs).to_pylist()
    assert [(row["k"], row["sum(x)"], row["min(x)"], row["mean(x)"]) for row in rows] == [
        ("a", 1.5, 1.5, 1.5),
        (None, 2.5, 2.5, 2.5),
    ]
    assert [row["list(x)"] for row in rows] == [[None, 1.5], [None, None, 2.5]]
    assert [row["unique(x)"] for row in rows] == [[None, 1.5], [None, 2.5]]
    assert rows[1]["value_counter(x)"] == {"values": [None, 2.5], "counts": [2, 1]}


REFUSED: list[tuple[list[str], Any, type[Exception], str]] = [
    (["z"], agg.Count(), ValueError, "no column 'z' to group by; the columns are 'k', 'x', 's', 'l'"),
    (["k", "k"], agg.Count(), ValueError, "key occurs twice"),
    (["l"], agg.Count(), TypeError, "cannot group by 'l', a column of type list"),
    (["k"], agg.Sum("z"), ValueError, r"no column 'z' to compute 'sum\(z\)' on"),
    (["k"], agg.Max(), ValueError, "Max needs a column"),
    (["k"], agg.Quantile(), ValueError, "Quantile needs a column"),
    (["k"], agg.Sum("s"), TypeError, r"cannot compute 'sum\(s\)': the column 's' is of type string"),
    (["k"], agg.Quantile("s"), TypeError, "the column 's' is of type string, which is not numeric"),
    (["k"], agg.Min("l"), TypeError, "the values of 'l', of type list.* have no order"),
    (["k"], "sum", TypeError, r"an aggregation must be an AggregateFn, such as Sum\('x'\), got 'sum'"),
]


@pytest.mark.parametrize(("keys", "aggregation", "error", "message"), REFUSED)
def test_what_cannot_be_computed_is_refused(
    keys: list[str], aggregation: Any, error: type[Exception], message: str
) -> None:
    table = pa.table({"k": [1], "x": [1], "s": ["a"], "l": [[1]]})
    with pytest.raises(error, match=message):
        grouping.partial_aggregate(table, keys, [aggregation])
