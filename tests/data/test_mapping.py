"""Functions that are called with rows and batches."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import skate
from skate.data import ActorPoolStrategy, DataContext, TaskPoolStrategy
from skate.data.exceptions import UserCodeException
from skate.data.expressions import col

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("where")]


def numbers(n: int = 20, blocks: int = 4) -> Any:
    return skate.data.range(n, override_num_blocks=blocks)


def test_map_makes_one_row_of_each_in_order() -> None:
    assert numbers().map(lambda row: {"x": 2 * row["id"]}).take_all() == [{"x": 2 * i} for i in range(20)]


def test_flat_map_makes_any_number_of_rows() -> None:
    found = numbers(4).flat_map(lambda row: [{"x": row["id"]}] * row["id"]).take_all()
    assert [row["x"] for row in found] == [1, 2, 2, 3, 3, 3]


def test_flat_map_takes_generators() -> None:
    def twice(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield row
        yield row

    assert [row["id"] for row in numbers(2).flat_map(twice).take_all()] == [0, 0, 1, 1]


def test_objects_without_an_arrow_type_reach_the_next_task() -> None:
    made = numbers(4).map(lambda row: {"x": slice(row["id"])}).materialize()
    assert made.take_all() == [{"x": slice(i)} for i in range(4)]
    assert made.map(lambda row: {"stop": row["x"].stop}).take_all() == [{"stop": i} for i in range(4)]


def test_filter_keeps_the_rows_for_which_it_is_true() -> None:
    assert [row["id"] for row in numbers(6).filter(lambda row: row["id"] % 2).take_all()] == [1, 3, 5]


def test_filter_that_keeps_nothing_leaves_the_columns() -> None:
    none = numbers(6).filter(lambda row: False)
    assert none.take_all() == []
    assert none.materialize().columns() == ["id"]


def test_a_function_sees_values_of_a_block_whether_or_not_steps_are_fused() -> None:
    made = {"tuple": (1, 2), "number": np.int32(3), "array": np.ones(2), "scalar": np.array(4), "set": {5}}

    def kinds(row: dict[str, Any]) -> dict[str, str]:
        return {name: type(value).__name__ for name, value in row.items()}

    first = numbers(1).map(lambda row: made)
    expected = [{"tuple": "list", "number": "int", "array": "ndarray", "scalar": "int", "set": "list"}]
    assert first.map(kinds).take_all() == expected
    assert first.filter(lambda row: isinstance(row["set"], list)).map(kinds).take_all() == expected
    assert first.flat_map(lambda row: [row]).map(kinds).take_all() == expected
    assert first.materialize().map(kinds).take_all() == expected


def test_rows_go_through_several_functions_at_once() -> None:
    found = (
        numbers(10)
        .map(lambda row: {"x": row["id"] + 1})
        .filter(lambda row: row["x"] > 7)
        .flat_map(lambda row: [row, {"x": -row["x"]}])
        .take_all()
    )
    assert [row["x"] for row in found] == [8, -8, 9, -9, 10, -10]


@pytest.mark.parametrize(
    ("batch_format", "kind"),
    [("default", dict), ("numpy", dict), ("pandas", pd.DataFrame), ("pyarrow", pa.Table)],
)
def test_batches_come_in_the_format_that_was_asked_for(batch_format: str, kind: type) -> None:
    def checked(batch: Any) -> Any:
        assert isinstance(batch, kind)
        return batch

    found = numbers(8).map_batches(checked, batch_format=batch_format).take_all()
    assert [row["id"] for row in found] == list(range(8))


def test_batches_have_the_size_that_was_asked_for_across_blocks() -> None:
    sizes = (
        numbers(20, blocks=7).map_batches(lambda batch: {"n": [len(batch["id"])]}, batch_size=8).take_all()
    )
    assert sum(row["n"] for row in sizes) == 20
    assert all(row["n"] <= 8 for row in sizes)
    assert sizes[0]["n"] == 8


def test_a_batch_function_may_return_any_length() -> None:
    assert numbers().map_batches(lambda batch: {"x": batch["id"][:1]}, batch_size=5).count() == 4


def test_a_batch_function_may_yield() -> None:
    def halves(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {"x": batch["id"][:2]}
        yield {"x": batch["id"][2:]}

    found = numbers(8, blocks=2).map_batches(halves, batch_size=4).take_all()
    assert [row["x"] for row in found] == list(range(8))


def test_a_batch_may_be_written_to_if_it_is_a_copy() -> None:
    def negated(batch: dict[str, Any]) -> dict[str, Any]:
        batch["id"] *= -1
        return batch

    found = numbers(4).materialize().map_batches(negated, zero_copy_batch=False).take_all()
    assert [row["id"] for row in found] == [0, -1, -2, -3]


def test_arguments_reach_the_function() -> None:
    found = numbers(2).map(lambda row, a, b: {"x": row["id"] + a + b}, fn_args=[10], fn_kwargs={"b": 100})
    assert [row["x"] for row in found.take_all()] == [110, 111]


class Adder:
    def __init__(self, amount: int, *, more: int = 0) -> None:
        self.amount = amount + more
        self.calls = 0

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.calls += 1
        return {"x": batch["id"] + self.amount, "pid": np.full(len(batch["id"]), os.getpid())}


@pytest.mark.starts_session
def test_a_class_is_made_once_in_each_of_its_actors() -> None:
    found = (
        numbers(40, blocks=8)
        .map_batches(Adder, fn_constructor_args=[5], fn_constructor_kwargs={"more": 1}, concurrency=2)
        .take_all()
    )
    assert [row["x"] for row in found] == [i + 6 for i in range(40)]
    assert len({row["pid"] for row in found}) <= 2


@pytest.mark.starts_session
def test_a_pool_of_actors_grows_up_to_its_size() -> None:
    found = numbers(40, blocks=8).map_batches(Adder, fn_constructor_args=[0], concurrency=(1, 2)).take_all()
    assert sorted(row["x"] for row in found) == list(range(40))


@pytest.mark.starts_session
def test_the_instances_of_a_class_are_finalized_at_the_end(tmp_path: Path) -> None:
    made = tmp_path / "made"

    class Holds:
        def __init__(self) -> None:
            made.touch()

        def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
            return row

        def __del__(self) -> None:
            made.rename(tmp_path / "finalized")

    assert len(numbers(4).map(Holds, concurrency=1).take_all()) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["finalized"]


def test_a_worker_is_replaced_after_max_calls(where: str) -> None:
    if where != "local":
        pytest.skip("needs workers that are replaced")

    def process(row: dict[str, Any]) -> dict[str, Any]:
        return {"process": os.getpid()}

    ds = skate.data.range(6, override_num_blocks=3).map(process, max_calls=1)
    assert len({row["process"] for row in ds.take_all()}) == 3
    with pytest.raises(ValueError, match="max_calls"):
        ds.map(process, ray_remote_args_fn=lambda: {"max_calls": 1}).take_all()


def test_a_class_is_called_with_rows_as_well() -> None:
    class Squared:
        def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
            return {"x": row["id"] ** 2}

    strategy = ActorPoolStrategy(size=1)
    assert [row["x"] for row in numbers(4).map(Squared, compute=strategy).take_all()] == [0, 1, 4, 9]


@pytest.mark.starts_session
def test_asynchronous_generators_of_batches_are_read() -> None:
    class Twice:
        async def __call__(self, batch: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
            for _ in range(2):
                await asyncio.sleep(0)
                yield {"x": batch["id"]}

    found = numbers(4, blocks=1).map_batches(Twice, concurrency=1, batch_size=2).take_all()
    assert [row["x"] for row in found] == [0, 1, 0, 1, 2, 3, 2, 3]


@pytest.mark.starts_session
def test_an_error_of_a_class_is_raised_as_well() -> None:
    class Broken:
        def __init__(self) -> None:
            raise KeyError("no model")

        def __call__(self, batch: Any) -> Any:
            return batch

    with pytest.raises((KeyError, skate.exceptions.RayActorError), match="no model"):
        numbers().map_batches(Broken, concurrency=1).take_all()


@pytest.mark.starts_session
def test_rows_that_are_enough_end_the_actors_that_make_more_without_an_error() -> None:
    for _ in range(5):
        ds = numbers(6, blocks=1).map_batches(Adder, fn_constructor_args=[1], batch_size=2, concurrency=1)
        assert len(ds.take(2)) == 2


@pytest.mark.starts_session
def test_a_function_may_use_its_arrays_again() -> None:
    class Reusing:
        def __init__(self) -> None:
            self.array = np.zeros(1, dtype=np.int64)

        def __call__(self, batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
            for number in batch["id"]:
                self.array[0] = number
                yield {"x": self.array}

    found = numbers(8, blocks=1).map_batches(Reusing, concurrency=1, batch_size=4).take_all()
    assert [row["x"] for row in found] == list(range(8))


@pytest.mark.starts_session
def test_steps_share_a_task_if_their_limits_of_tasks_are_the_same() -> None:
    def operators(dataset: Any) -> list[str]:
        lines = dataset.materialize().stats().splitlines()
        return [line.split()[2].rstrip(":") for line in lines if line.startswith("Operator")]

    def same(batch: Any) -> Any:
        return batch

    def limited(dataset: Any, most: int | None) -> Any:
        return dataset.map_batches(same, concurrency=most)

    assert operators(limited(limited(numbers(), None), None)) == [
        "ReadRange->MapBatches(same)->MapBatches(same)"
    ]
    assert operators(limited(numbers(), 2)) == ["ReadRange", "MapBatches(same)"]
    assert operators(limited(limited(numbers(), 2), 2)) == ["ReadRange", "MapBatches(same)->MapBatches(same)"]
    assert operators(limited(limited(numbers(), 1), 2)) == [
        "ReadRange",
        "MapBatches(same)",
        "MapBatches(same)",
    ]


def test_a_strategy_counts_more_than_a_concurrency() -> None:
    ds = numbers(4).map_batches(
        Adder, fn_constructor_args=[1], compute=ActorPoolStrategy(size=1), concurrency=2
    )
    assert ds._node.compute.actors == (1, 1, 1)  # type: ignore[attr-defined]


def test_asynchronous_functions_are_awaited() -> None:
    async def later(row: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"x": row["id"] + 1}

    assert [row["x"] for row in numbers(5).map(later).take_all()] == [1, 2, 3, 4, 5]


def test_columns_are_added_selected_dropped_and_renamed() -> None:
    ds = numbers(2).add_column("a", lambda frame: frame["id"] + 1).with_column("b", col("a") * 10)
    assert ds.take_all() == [{"id": 0, "a": 1, "b": 10}, {"id": 1, "a": 2, "b": 20}]
    assert ds.select_columns(["b", "id"]).columns() == ["b", "id"]
    assert ds.drop_columns(["a"]).columns() == ["id", "b"]
    assert ds.rename_columns({"a": "z"}).columns() == ["id", "z", "b"]
    assert ds.rename_columns(["x", "y", "z"]).columns() == ["x", "y", "z"]


def test_functions_see_the_settings_of_their_dataset(settings: DataContext) -> None:
    settings.set_config("word", "then")
    ds = numbers(1).map(lambda row: {"word": DataContext.get_current().get_config("word")})
    settings.set_config("word", "now")
    assert ds.take_all() == [{"word": "then"}]
    assert DataContext.get_current().get_config("word") == "now"


# ------------------------------------------------------------ errors


def test_an_error_of_a_function_has_its_own_type_and_says_that_it_is_user_code() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        numbers().map(lambda row: {"x": 1 // row["id"]}).take_all()
    assert isinstance(caught.value, UserCodeException)
    assert isinstance(caught.value, skate.exceptions.RayTaskError)
    assert "1 // row" in str(caught.value)


def test_map_must_return_a_dict() -> None:
    with pytest.raises(ValueError, match=r"(?s)map must return a dict.*3 \(int\)"):
        numbers().map(lambda row: 3).take_all()


def test_columns_of_a_batch_must_have_the_same_length() -> None:
    with pytest.raises(ValueError, match=r"(?s)a.*2.*b.*1"):
        numbers().map_batches(lambda batch: {"a": [1, 2], "b": [1]}).take_all()


def test_values_of_a_column_must_be_of_one_kind() -> None:
    with pytest.raises((TypeError, ValueError), match="x"):
        numbers(2, blocks=1).map(lambda row: {"x": "text" if row["id"] else 1}).take_all()


def test_rows_that_fail_are_left_out_and_counted() -> None:
    ds = numbers(10).map(lambda row: {"x": 12 // (row["id"] - 3)}, on_error="drop")
    assert len(ds.take_all()) == 9
    assert "user code failed: 1" in ds.stats()
    assert ds.dead_letters().count() == 0


def test_rows_that_fail_are_kept_with_their_errors() -> None:
    ds = numbers(10).map(lambda row: {"x": 12 // (row["id"] - 3)}, on_error="dead_letter")
    assert ds.count() == 9
    [letter] = ds.dead_letters().take_all()
    assert letter["row"] == {"id": 3}
    assert letter["error_type"] == "ZeroDivisionError"
    assert "12 // (row" in letter["traceback"]


def test_of_a_batch_that_fails_only_the_failing_rows_are_left_out() -> None:
    def picky(batch: dict[str, Any]) -> dict[str, Any]:
        if 13 in batch["id"] or 17 in batch["id"]:
            raise ValueError("unlucky")
        return {"x": batch["id"]}

    ds = numbers(20, blocks=2).map_batches(picky, batch_size=10, on_error="dead_letter")
    assert [row["x"] for row in ds.take_all()] == [i for i in range(20) if i not in (13, 17)]
    assert [row["row"]["id"] for row in ds.dead_letters().take_all()] == [13, 17]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda ds: ds.map_batches(lambda b: b, batch_size=0), "batch_size"),
        (lambda ds: ds.map_batches(lambda b: b, batch_format="excel"), "excel"),
        (lambda ds: ds.map_batches(lambda b: b, num_gpus=1), "needs a `batch_size`"),
        (lambda ds: ds.map(lambda r: r, compute="tasks"), "TaskPoolStrategy"),
        (lambda ds: ds.map(3), "callable"),
        (lambda ds: ds.map(lambda r: r, fn_constructor_args=[1]), "class"),
        (lambda ds: ds.map(lambda r: r, concurrency=0), "positive"),
        (lambda ds: ds.map(lambda r: r, concurrency=(1, 2)), "function"),
        (lambda ds: ds.map(lambda r: r, compute=ActorPoolStrategy(size=1)), "class"),
        (lambda ds: ds.map(Adder, compute=TaskPoolStrategy()), "actors"),
        (lambda ds: ds.map(lambda r: r, on_error="shrug"), "dead_letter"),
        (lambda ds: ds.filter(), "exactly one"),
        (lambda ds: ds.select_columns(["a", "a"]), "unique"),
        (lambda ds: ds.rename_columns({}), "no entries"),
        (lambda ds: ActorPoolStrategy(size=0), "size"),
        (lambda ds: ActorPoolStrategy(min_size=3, max_size=2), "min_size"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(call: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        call(numbers())


@pytest.mark.parametrize(
    ("allowed", "bad", "fails"), [(0, 1, True), (2, 2, False), (2, 3, True), (-1, 4, False)]
)
def test_so_many_blocks_may_fail(settings: DataContext, allowed: int, bad: int, fails: bool) -> None:
    settings.max_errored_blocks = allowed

    def fragile(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] < 5 * bad:
            raise RuntimeError("no such number")
        return row

    ds = numbers(20, blocks=4).map(fragile)
    if fails:
        with pytest.raises(RuntimeError, match="no such number"):
            ds.take_all()
    else:
        assert [row["id"] for row in ds.take_all()] == list(range(5 * bad, 20))
        assert f"Blocks left out because their tasks failed: {bad}" in ds.stats()
