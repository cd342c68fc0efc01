from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from skate.data import aggregate as agg
from tests.data.kernels.aggregating import assert_same, mean_by_hand, run


class Longest(agg.AggregateFnV2[str, str]):
    def __init__(self, on: str, ignore_nulls: bool = True) -> None:
        super().__init__("longest", lambda: "", on=on, ignore_nulls=ignore_nulls)

    def aggregate_block(self, block: pa.Table) -> str:
        values = block.column(self.get_target_column()).to_pylist()
        if not self.ignore_nulls and None in values:
            return None  # type: ignore[return-value]  # the way to say that there is no result
        longest: Any = max((value for value in values if value is not None), key=len, default=None)
        return longest  # type: ignore[no-any-return]  # None, too, says that there is nothing yet

    def combine(self, current_accumulator: str, new: str) -> str:
        return max(current_accumulator, new, key=len)

    def finalize(self, accumulator: str) -> str:
        return accumulator.upper()


def test_built_in_and_user_defined_aggregations_go_together() -> None:
    table = pa.table({"k": ["b", "a", "b", "b"], "x": [1, 2, 4, 4], "word": ["x", None, "yy", "z"]})
    aggs = [mean_by_hand("x", "by hand"), agg.Mean("x"), Longest("word"), agg.AsList("x")]
    for cuts in ([], [1], [1, 2, 3]):
        assert run(table, ["k"], aggs, cuts).to_pylist() == [
            {"k": "a", "by hand": 2.0, "mean(x)": 2.0, "longest": None, "list(x)": [2]},
            {"k": "b", "by hand": 3.0, "mean(x)": 3.0, "longest": "YY", "list(x)": [1, 4, 4]},
        ]


def test_a_null_spoils_the_result_of_a_group_if_nulls_are_not_ignored() -> None:
    table = pa.table({"k": [1, 1, 2], "word": ["x", None, "y"]})
    result = run(table, ["k"], [Longest("word", ignore_nulls=False)], [1])
    assert result["longest"].to_pylist() == [None, "Y"]


@pytest.mark.parametrize(
    ("keys", "expected"), [(["k"], [1, 2]), (["k", "l"], [(1, "x"), (2, "y")]), ([], [None])]
)
def test_an_accumulator_is_made_with_the_key_of_its_group(keys: list[str], expected: list[Any]) -> None:
    table = pa.table({"k": [1, 2], "l": ["x", "y"]})
    seen = agg.AggregateFn(
        init=lambda key: [repr(key)],
        accumulate_row=lambda state, row: state,
        merge=lambda a, b: a,
        name="key",
    )
    assert run(table, keys, [seen])["key"].to_pylist() == [[repr(key)] for key in expected]


def test_blocks_of_a_group_are_tables() -> None:
    rows = agg.AggregateFn(
        init=lambda key: 0,
        accumulate_block=lambda count, block: count + block.num_rows,
        merge=sum_of,
        name="rows",
    )
    table = pa.table({"k": [1, 2, 1]})
    assert run(table, ["k"], [rows], [1])["rows"].to_pylist() == [2, 1]
    assert run(table.slice(0, 0), [], [rows])["rows"].to_pylist() == [0]


def sum_of(one: int, other: int) -> int:
    return one + other


class RoundedMean(agg.Mean):
    def finalize(self, accumulator: list[Any]) -> float | None:
        mean = super().finalize(accumulator)
        return None if mean is None else round(mean)


def test_a_subclass_of_a_built_in_aggregation_may_change_a_step() -> None:
    table = pa.table({"x": [1, 2, None, 4]})
    assert run(table, [], [RoundedMean("x"), agg.Mean("x", alias_name="mean")], [1]).to_pylist() == [
        {"mean(x)": 2, "mean": pytest.approx(7 / 3)}
    ]


REDUCED_OR_COLLECTED: list[Any] = [
    *(agg.Count, agg.Sum, agg.Min, agg.Max, agg.AbsMax, agg.Mean, agg.Std),
    *(agg.Quantile, agg.AsList, agg.Unique, agg.CountDistinct),
]
BUILT_IN = [kind("x") for kind in REDUCED_OR_COLLECTED] + [
    agg.ValueCounter("x"),
    agg.MissingValuePercentage("x"),
    agg.ZeroPercentage("x"),
]


@pytest.mark.parametrize("built_in", BUILT_IN, ids=repr)
def test_the_methods_of_built_in_aggregations_do_what_the_kernels_do(
    built_in: agg.AggregateFnV2[Any, Any],
) -> None:
    table = pa.table({"x": [3, None, -4, 3, 0, None]})
    by_methods = built_in.init(None)
    for block in (table.slice(0, 2), table.slice(2)):
        by_methods = built_in.merge(by_methods, built_in.accumulate_block(built_in.init(None), block))
    assert_same(built_in.finalize(by_methods), run(table, [], [built_in], [2]).to_pylist()[0][built_in.name])


@pytest.mark.parametrize("built_in", BUILT_IN, ids=repr)
def test_built_in_aggregations_are_pickled(built_in: agg.AggregateFnV2[Any, Any]) -> None:
    again = pickle.loads(pickle.dumps(built_in))
    table = pa.table({"x": [1, 2, None]})
    assert run(table, [], [again]).equals(run(table, [], [built_in]))


def test_approximate_quantiles_of_few_values_are_exact() -> None:
    table = pa.table({"k": ["a"] * 5 + ["b"] * 2, "x": [10, 0, 30, 0, 50, None, 7]})
    result = run(table, ["k"], [agg.ApproximateQuantile("x", [0.0, 0.1, 0.5, 0.9, 1.0])], [2])
    assert result["approx_quantile(x)"].to_pylist() == [[0.0, 0.0, 10.0, 50.0, 50.0], [7.0] * 5]


def test_approximate_quantiles_of_many_values_are_close() -> None:
    values = np.random.default_rng(0).permutation(100_000).astype(float)
    quantiles = [0.0, 0.01, 0.25, 0.5, 0.9, 0.999, 1.0]
    result = run(
        pa.table({"x": values}), [], [agg.ApproximateQuantile("x", quantiles, 100)], [1000, 30_000, 70_000]
    )
    found = result["approx_quantile(x)"].to_pylist()[0]
    assert found == pytest.approx([100_000 * q for q in quantiles], abs=100_000 * 0.005)
    assert (found[0], found[-1]) == (0.0, 99_999.0)


def test_the_most_frequent_values_are_found_among_many() -> None:
    words = ["often"] * 100 + ["seldom"] * 50 + [f"word {i}" for i in range(100)] + [None] * 200
    order = np.random.default_rng(0).permutation(len(words))
    table = pa.table({"word": [words[i] for i in order]})
    result = run(table, [], [agg.ApproximateTopK("word", k=2, log_capacity=6)], [50, 200])
    assert result["approx_topk(word)"].to_pylist() == [
        [{"word": "often", "count": 100}, {"word": "seldom", "count": 50}]
    ]


def test_the_most_frequent_lists_and_elements_of_lists() -> None:
    table = pa.table({"x": [[1, 1, 2], [1, 1, 2], [3]]})
    aggs = [
        agg.ApproximateTopK("x", k=1),
        agg.ApproximateTopK("x", k=1, encode_lists=True, alias_name="elements"),
    ]
    assert run(table, [], aggs).to_pylist() == [
        {"approx_topk(x)": [{"x": [1, 1, 2], "count": 2}], "elements": [{"x": 1, "count": 4}]}
    ]


FN: Any = agg.AggregateFn  # any, for the mistakes that a type checker would find
MISTAKES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: FN(init=int, merge=max, name="x"), ValueError, "needs exactly one .* got neither"),
    (lambda: FN(int, max, "x", max, max), ValueError, "needs exactly one .* got both"),
    (lambda: FN(int, max, 3, max), TypeError, "`name` must be a string, got 3"),
    (lambda: FN(1, max, "x", max), TypeError, "`init` must be a function, got 1"),
    (lambda: agg.Max(lambda row: row), ValueError, "`on` must be the name of a column"),  # type: ignore[arg-type]  # the mistake
    (lambda: agg.Quantile("x", q=2), ValueError, "`q` must be a number between 0 and 1, got 2"),
    (lambda: agg.ApproximateQuantile("x", []), ValueError, "one or more numbers between 0 and 1"),
    (
        lambda: agg.ApproximateQuantile("x", [0.5], 0),
        ValueError,
        "`quantile_precision` must be a positive integer, got 0",
    ),
    (lambda: agg.ApproximateTopK("x", k=0), ValueError, "`k` must be a positive integer, got 0"),
]


@pytest.mark.parametrize(("make", "error", "message"), MISTAKES)
def test_a_wrong_definition_is_refused(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
