"""Statistics of the columns of a dataset."""

from __future__ import annotations

import datetime
from typing import Any

import pandas as pd
import pytest

import skate
from skate.data import DataContext
from skate.data.aggregate import ApproximateQuantile, Count, Sum
from skate.data.datatype import DataType, TypeCategory

DAY = datetime.datetime(2026, 1, 1)


@pytest.fixture
def people(settings: DataContext) -> Any:
    return skate.data.from_items(
        [
            {"age": 30, "name": "Ann", "since": DAY},
            {"age": 0, "name": "Bo", "since": None},
            {"age": None, "name": "Ann", "since": DAY + datetime.timedelta(1)},
        ],
        override_num_blocks=3,
    )


def statistics(summary: Any, column: str) -> dict[str, Any]:
    frame = summary.get_column_stats(column).set_index("statistic")["value"]
    return {name: value for name, value in frame.items() if not _missing(value)}


def _missing(value: Any) -> bool:
    return not isinstance(value, dict) and bool(pd.isna(value))


def test_numbers_have_what_numbers_have(people: Any) -> None:
    assert statistics(people.summary(), "age") == pytest.approx(
        {
            "count": 3,
            "mean": 15,
            "min": 0,
            "max": 30,
            "std": 15,
            "approx_quantile[0]": 30,
            "missing_pct": 100 / 3,
            "zero_pct": 50,
        }
    )


def test_text_has_its_most_frequent_values(people: Any) -> None:
    assert statistics(people.summary(), "name") == {
        "count": 3,
        "missing_pct": 0,
        "approx_topk[0]": {"name": "Ann", "count": 2},
        "approx_topk[1]": {"name": "Bo", "count": 1},
    }


def test_times_have_a_first_and_a_last(people: Any) -> None:
    found = statistics(people.summary(), "since")
    assert (found["min"], found["max"]) == (DAY, DAY + datetime.timedelta(1))
    assert found["missing_pct"] == pytest.approx(100 / 3)


def test_a_frame_has_a_row_for_each_statistic_and_a_column_for_each_of_the_dataset(people: Any) -> None:
    frame = people.summary(columns=["name", "age"]).to_pandas()
    assert list(frame.columns) == ["statistic", "age", "name"]
    assert list(frame["statistic"]) == sorted(frame["statistic"])


def test_aggregates_can_be_chosen_for_a_type_and_for_a_kind_of_types(people: Any) -> None:
    chosen = {
        DataType.int64(): lambda column: [
            Sum(on=column),
            ApproximateQuantile(on=column, quantiles=[0.0, 1.0]),
        ],
        TypeCategory.TEMPORAL: lambda column: [Count(on=column)],
    }
    summary = people.summary(override_dtype_agg_mapping=chosen)
    assert statistics(summary, "age") == {"sum": 30, "approx_quantile[0]": 0, "approx_quantile[1]": 30}
    assert statistics(summary, "since") == {"count": 3}


def test_a_column_that_is_not_there_is_named(people: Any) -> None:
    with pytest.raises(ValueError, match="height"):
        people.summary(columns=["height"])
    with pytest.raises(ValueError, match="height"):
        people.summary().get_column_stats("height")
