"""Mistakes in calls that transform, combine, split and aggregate datasets."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import skate.data as data
from skate.data import (
    ActorPoolStrategy,
    TaskPoolStrategy,
    aggregate,
)
from skate.data import expressions as ex
from skate.data.grouped_data import GroupedData
from tests.misuse.data_support import (
    finished,
    identity,
    of_dataset,
    on_rows,
    rows,
)
from tests.misuse.support import Mistake, mistakes


def functions() -> Iterator[Mistake]:
    """Yield mistakes in arguments of methods that call a function."""
    strategies: list[Any] = ["actors", 3, TaskPoolStrategy, ActorPoolStrategy(size=1)]
    for method in ("map", "flat_map", "filter", "map_batches"):
        yield from of_dataset(
            method,
            correct=lambda: {"fn": identity},
            wrong={
                "compute": strategies,
                "concurrency": ["two", 0, (1, 2), 1.5],
                "on_error": ["ignore"],
                "fn_kwargs": [[1]],
            },
            valid={"fn": [None], **({"num_gpus": [-7]} if method == "map_batches" else {})},
            options="num_cpu",
        )
    yield from of_dataset(
        "map_batches",
        correct=lambda: {"fn": identity, "batch_size": 2},
        wrong={"batch_format": ["arow", 3], "batch_size": ["many", 0, 1.5]},
        valid={name: [] for name in ("fn", "num_cpus", "memory", "on_error")},
    )
    yield on_rows("ds.filter", "neither fn nor expr", lambda ds: ds.filter(), "'fn'")
    yield on_rows("ds.filter", "expr=3", lambda ds: ds.filter(expr=3), "expr", "3")
    yield on_rows("ds.filter", "expr='id >'", lambda ds: ds.filter(expr="id >"), "id >")
    yield on_rows("ds.filter", "expr='ids > 1'", lambda ds: ds.filter(expr="ids > 1"), "ids")
    yield from mistakes("ActorPoolStrategy", ActorPoolStrategy, wrong={"size": [0]})
    yield Mistake(
        "ActorPoolStrategy",
        "min_size=3, max_size=2",
        lambda: ActorPoolStrategy(min_size=3, max_size=2),
        ("min_size",),
    )
    yield Mistake(
        "ActorPoolStrategy",
        "size=3, max_size=2",
        lambda: ActorPoolStrategy(size=3, max_size=2),
        ("max_size",),
    )
    yield from mistakes("TaskPoolStrategy", TaskPoolStrategy, wrong={"size": [0]})


def functions_that_fail() -> Iterator[Mistake]:
    """Yield functions that do not fit the method they are given to."""

    def no_argument() -> Any:
        return {}

    def two_arguments(row: Any, other: Any) -> Any:
        return row

    for method in ("map", "flat_map", "filter", "map_batches"):
        name, call = f"ds.{method}", operator.methodcaller
        for fn in (no_argument, two_arguments):
            yield on_rows(name, fn.__name__, call(method, fn), fn.__name__)
        yield on_rows(name, "fn_kwargs={'b': 1}", call(method, identity, fn_kwargs={"b": 1}), "'b'")
    for method, mistake, fn, named in (
        ("map", "returns 3", lambda row: 3, "3 (int)"),
        ("map", "returns None", lambda row: None, "None"),
        ("map", "returns a list", lambda row: [row], "list"),
        ("map", "reads an absent column", lambda row: {"a": row["ids"]}, "ids"),
        ("map", "a class without __call__", Path, "__call__"),
        ("flat_map", "returns a dict", identity, "dict"),
        ("flat_map", "returns 3", lambda row: 3, "3 (int)"),
        ("map_batches", "returns 3", lambda batch: 3, "int"),
        ("map_batches", "returns None", lambda batch: None, "None"),
        ("map_batches", "returns text", lambda batch: "a", "str"),
        ("map_batches", "returns a number as a column", lambda batch: {"a": 3}, "'a'"),
        ("map_batches", "columns of different lengths", lambda batch: {"a": [1], "b": [1, 2]}, "'a'"),
    ):
        yield on_rows(f"ds.{method}", mistake, operator.methodcaller(method, fn), named)
    yield on_rows(
        "ds.map",
        "fn_constructor_args for a function",
        lambda ds: ds.map(identity, fn_constructor_args=[1]),
        "fn_constructor_args",
    )
    yield on_rows(
        "ds.add_column", "too many values", lambda ds: ds.add_column("a", lambda frame: [1] * 9), "9"
    )
    yield on_rows(
        "ds.add_column",
        "reads an absent column",
        lambda ds: ds.add_column("a", lambda frame: frame["ids"]),
        "ids",
    )


def projections() -> Iterator[Mistake]:
    """Yield mistakes in methods that work on columns."""
    yield from of_dataset(
        "add_column",
        correct=lambda: {"col": "a", "fn": len},
        wrong={"batch_format": ["polar", None]},
        options="num_cpu",
    )
    yield from of_dataset(
        "select_columns",
        correct=lambda: {"cols": ["id"]},
        wrong={"cols": [[3], ["id", "id"], ["ids"], "ids", None]},
        finish=finished,
        options="num_cpu",
    )
    yield from of_dataset(
        "drop_columns",
        correct=lambda: {"cols": ["id"]},
        wrong={"cols": [[3], ["id", "id"], ["ids"], "ids", None]},
        finish=finished,
        options="num_cpu",
    )
    yield from of_dataset(
        "rename_columns",
        correct=lambda: {"names": {"id": "i"}},
        wrong={"names": ["id", {}, [], {"ids": "i"}, ["a"], {"id": 3}, ["a", "a", "b"], {"id": "name"}]},
        finish=finished,
        options="num_cpu",
    )
    yield from of_dataset(
        "with_column",
        correct=lambda: {"column_name": "a", "expr": ex.col("id")},
        wrong={"expr": [3, "id + 1", len]},
        options="num_cpu",
    )
    yield from of_dataset(
        "with_columns",
        correct=dict,
        wrong={"exprs": [3, ["a"], {"a": 3}, {3: ex.col("id")}]},
        options="num_cpu",
    )
    yield Mistake(
        "ds.with_column",
        "an absent column",
        lambda: finished(rows().with_column("a", ex.col("ids"))),
        ("ids",),
    )
    yield on_rows("ds.set_name", "name=3", lambda ds: ds.set_name(3), "name")


def relations() -> Iterator[Mistake]:
    """Yield mistakes in methods that order, group and combine."""
    yield from of_dataset(
        "sort",
        wrong={
            "key": [None, [], [3], "ids", ["id", "ids"]],
            "descending": [[True, False], "yes", 3],
            "boundaries": ["a"],
        },
        correct=lambda: {"key": "id"},
        finish=finished,
    )
    yield on_rows("ds.sort", "a column of lists", lambda ds: ds.sort("list"), "'list'")
    yield from of_dataset(
        "groupby", wrong={"key": ["ids", [3], ["ids"]], "num_partitions": [0]}, correct=lambda: {"key": "id"}
    )
    yield from of_dataset(
        "join",
        correct=lambda: {"ds": rows(), "join_type": "inner", "on": "id", "right_suffix": "_r"},
        wrong={
            "ds": [3, [1]],
            "join_type": ["outer"],
            "on": ["ids", [], ["id", "name"]],
            "right_on": ["ids", ["id", "name"]],
            "num_partitions": [0],
        },
        valid={"on": [["id", "name"]]},
        finish=finished,
    )
    yield from of_dataset("union", wrong={})
    for method in ("union", "zip", "mix"):
        yield Mistake(f"ds.{method}", "3", lambda m=method: getattr(rows(), m)(3), ("3",))  # type: ignore[misc]
        yield Mistake(f"ds.{method}", "a list", lambda m=method: getattr(rows(), m)([rows()]), ("list",))  # type: ignore[misc]
    yield on_rows("ds.zip", "other lengths", lambda ds: ds.zip(data.range(5)), "5")
    yield from of_dataset("mix", wrong={"weights": [[1, 2], [0], ["a"]], "stopping_condition": ["first"]})
    yield from of_dataset(
        "repartition",
        wrong={"num_blocks": [0], "keys": ["ids", ["ids"], [3]], "target_num_rows_per_block": [0]},
        correct=lambda: {"num_blocks": 2},
        finish=finished,
    )
    yield on_rows("ds.repartition", "no argument", lambda ds: ds.repartition(), "num_blocks")
    yield Mistake(
        "ds.repartition",
        "target_num_rows_per_block='three'",
        lambda: rows().repartition(target_num_rows_per_block="three"),
        ("target_num_rows_per_block",),
    )
    yield from of_dataset(
        "random_shuffle", wrong={"seed": ["a", 1.5], "num_blocks": [3]}, options="num_cpu", finish=finished
    )
    yield from of_dataset("randomize_block_order", wrong={"seed": ["a"]})
    yield from of_dataset(
        "random_sample",
        wrong={"fraction": [1.5, None, True], "seed": ["a"]},
        correct=lambda: {"fraction": 0.5},
    )
    yield from mistakes("RandomSeedConfig", data.RandomSeedConfig, valid={"seed": [-7]})
    yield from mistakes("FileShuffleConfig", data.FileShuffleConfig, valid={"seed": [-7]})


def splits() -> Iterator[Mistake]:
    """Yield mistakes in methods that split."""
    yield from of_dataset(
        "split", wrong={"n": [0], "locality_hints": [[1]], "equal": ["no"]}, correct=lambda: {"n": 2}
    )
    yield from of_dataset("split_at_indices", wrong={"indices": [[], [2, 1], [-1], ["a"], [1.5]]})
    yield from of_dataset(
        "split_proportionately", wrong={"proportions": [[], [1.5], [0.5, 0.6], ["a"], [-0.5]]}
    )
    yield from of_dataset(
        "train_test_split",
        wrong={"test_size": [0, 1.5, 9, True, None], "stratify": ["ids"], "seed": ["a"], "shuffle": ["no"]},
        valid={"seed": [-7]},
        correct=lambda: {"test_size": 1},
    )
    yield from of_dataset(
        "streaming_train_test_split",
        wrong={"test_size": [0, 1.5], "hash_column": ["id"], "seed": ["a"]},
        valid={"seed": [-7]},
        correct=lambda: {"test_size": 0.5},
        options="num_cpu",
    )
    yield Mistake(
        "ds.streaming_train_test_split",
        "an absent column",
        lambda: finished(rows().streaming_train_test_split(0.5, split_type="hash", hash_column="ids")[0]),
        ("ids",),
    )
    yield from of_dataset(
        "streaming_split",
        wrong={"n": [0], "equal": ["no", 1], "locality_hints": [[1]]},
        correct=lambda: {"n": 2},
    )


def aggregations() -> Iterator[Mistake]:
    """Yield mistakes in aggregations, of datasets and of groups."""
    for method in ("sum", "min", "max", "mean", "std"):
        yield from of_dataset(method, correct=lambda: {"on": "id"}, wrong={"on": ["ids", [], [3], ["ids"]]})
        yield from mistakes(
            f"groups.{method}",
            getattr(GroupedData, method),
            lambda m=method: getattr(rows().groupby("name"), m),  # type: ignore[misc]
            correct=lambda: {"on": "id"},
            wrong={"on": ["ids", [], [3]]},
            finish=finished,
        )
        yield Mistake(
            f"ds.{method}", "a column of text", lambda m=method: getattr(rows(), m)("list"), ("list",)
        )  # type: ignore[misc]
    yield on_rows("ds.aggregate", "nothing", lambda ds: ds.aggregate(), "at least one")
    for wrong in (3, "sum", aggregate.Sum, None):
        name = getattr(wrong, "__name__", repr(wrong))
        yield Mistake("ds.aggregate", name, lambda w=wrong: rows().aggregate(w), (name,))  # type: ignore[misc]
        yield Mistake(
            "groups.aggregate", name, lambda w=wrong: finished(rows().groupby("id").aggregate(w)), (name,)
        )  # type: ignore[misc]
    yield from mistakes(
        "groups.map_groups",
        GroupedData.map_groups,
        lambda: rows().groupby("id").map_groups,
        correct=lambda: {"fn": identity},
        wrong={"batch_format": ["arow"], "on_error": ["ignore"], "concurrency": ["two"], "fn_kwargs": [[1]]},
        options="num_cpu",
    )
    yield Mistake(
        "groups.map_groups",
        "returns 3",
        lambda: finished(rows().groupby("id").map_groups(lambda group: 3)),
        ("int",),
    )
    yield from mistakes(
        "groups.with_column",
        GroupedData.with_column,
        lambda: rows().groupby("id").with_column,
        correct=lambda: {"column_name": "a", "expr": ex.col("id")},
        wrong={"expr": [3]},
        options="num_cpu",
    )
    for name in aggregate.__all__:
        if name in ("AggregateFn", "AggregateFnV2"):
            continue
        required: dict[str, Any] = {
            "ApproximateQuantile": {"quantiles": [0.5]},
            "ApproximateTopK": {"k": 2},
        }.get(name, {})
        yield from mistakes(
            name,
            getattr(aggregate, name),
            correct=lambda required=required: {"on": "id", **required},  # type: ignore[misc]
            wrong={
                "Quantile": {"q": [1.5]},
                "ApproximateQuantile": {"quantiles": [[], [1.5], ["a"]]},
                "ApproximateTopK": {"k": [0], "log_capacity": [0]},
                "Unique": {"encode_lists": ["misspelt"]},
            }.get(name, {}),
        )
    yield from mistakes(
        "AggregateFn",
        aggregate.AggregateFn,
        correct=lambda: {"init": int, "merge": max, "name": "a", "accumulate_row": max},
        valid={"accumulate_block": []},
    )
    yield Mistake(
        "AggregateFn",
        "no accumulate_row",
        lambda: aggregate.AggregateFn(init=len, merge=max, name="a"),
        ("accumulate_row",),
    )
