"""Functions that are called with all rows of a group."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import skate
from skate.data import ActorPoolStrategy
from skate.data.aggregate import Count, Quantile, Std, Sum, Unique

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("where")]


def sevenths(n: int = 70, blocks: int = 5) -> Any:
    return skate.data.range(n, override_num_blocks=blocks).map(lambda row: {**row, "k": row["id"] % 7})


@pytest.mark.parametrize("method", ["map", "map_batches"])
def test_a_step_that_makes_no_rows_leaves_nothing_to_aggregate(method: str) -> None:
    none = getattr(skate.data.range(3).filter(lambda row: False), method)(lambda rows: rows)
    found = none.aggregate(Count(), Sum("id"), Std("id"), Quantile("id"), Unique("id"))
    assert found == {
        "count()": 0,
        "sum(id)": None,
        "std(id)": None,
        "quantile(id)": None,
        "unique(id)": [],
    }
    assert none.groupby("id").count().take_all() == []
    assert none.unique("id") == []


def test_a_group_is_a_frame_of_pandas_if_no_format_is_asked_for() -> None:
    ds = sevenths().groupby("k").map_groups(lambda frame: frame.nlargest(1, "id"))
    assert ds.take_all() == [{"id": 63 + k, "k": k} for k in range(7)]


@pytest.mark.parametrize(
    ("batch_format", "expected"), [("numpy", dict), ("pyarrow", pa.Table), ("pandas", pd.DataFrame)]
)
def test_a_group_has_the_format_that_is_asked_for(batch_format: str, expected: type) -> None:
    def told(group: Any) -> dict[str, list[str]]:
        return {"what": [type(group).__name__]}

    found = sevenths().groupby("k").map_groups(told, batch_format=batch_format).take_all()
    assert [row["what"] for row in found] == [expected.__name__] * 7


def test_a_function_may_yield_several_batches_for_a_group() -> None:
    def twice(frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
        yield frame.assign(id=frame["id"] + 100)
        yield frame.head(1)

    assert sevenths(14).groupby("k").map_groups(twice).count() == 14 + 7


def test_an_unknown_format_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="batch format must be one of"):
        sevenths().groupby("k").map_groups(lambda group: group, batch_format="arrow")


@pytest.mark.starts_session
def test_instances_of_a_class_are_called_in_as_many_actors_as_asked_for() -> None:
    class Largest:
        def __init__(self, more: int) -> None:
            self.more = more

        def __call__(self, frame: pd.DataFrame) -> dict[str, list[int]]:
            return {"most": [int(frame["id"].max()) + self.more], "process": [os.getpid()]}

    ds = sevenths().groupby("k")
    found = ds.map_groups(Largest, fn_constructor_args=[1000], compute=ActorPoolStrategy(size=2)).take_all()
    assert [row["most"] for row in found] == [1063 + k for k in range(7)]
    assert len({row["process"] for row in found}) <= 2


@pytest.mark.starts_session
def test_one_group_of_all_rows_can_be_given_to_a_class() -> None:
    class Counted:
        def __call__(self, frame: pd.DataFrame) -> dict[str, list[int]]:
            return {"rows": [len(frame)]}

    assert sevenths().groupby(None).map_groups(Counted).take_all() == [{"rows": 70}]


@pytest.mark.starts_session
def test_options_that_are_asked_for_each_task_reach_the_function(where: str) -> None:
    def variable(frame: pd.DataFrame) -> dict[str, list[str]]:
        return {"found": [os.environ.get("SKATE_TEST_GROUPS", "missing")]}

    options = {"runtime_env": {"env_vars": {"SKATE_TEST_GROUPS": "here"}}}
    ds = sevenths().groupby("k").map_groups(variable, ray_remote_args_fn=lambda: options)
    assert {row["found"] for row in ds.take_all()} == {"here"}


def test_the_name_of_a_partial_is_that_of_its_function() -> None:
    def counted(frame: pd.DataFrame, more: int) -> dict[str, list[int]]:
        return {"n": [len(frame) + more]}

    ds = sevenths(14).groupby("k").map_groups(partial(counted, more=1))
    assert {row["n"] for row in ds.take_all()} == {3}
    assert "MapGroups(counted)" in ds.stats()
