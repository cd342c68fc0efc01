"""Taking rows and batches out of datasets."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skate
from skate._base.background_threads import is_background_thread
from skate.data import DataContext
from skate.data.collate_fn import ArrowBatchCollateFn

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("where")]


def numbers(n: int = 20, blocks: int = 4) -> Any:
    return skate.data.range(n, override_num_blocks=blocks)


def test_take_gives_the_first_rows() -> None:
    assert numbers().take(3) == [{"id": 0}, {"id": 1}, {"id": 2}]
    assert len(numbers().take()) == 20


def test_take_all_refuses_more_than_its_limit() -> None:
    assert len(numbers().take_all(limit=20)) == 20
    with pytest.raises(ValueError, match="more than 19 rows"):
        numbers().take_all(limit=19)


def test_take_batch_gives_one_batch_across_blocks() -> None:
    assert numbers().take_batch(12)["id"].tolist() == list(range(12))
    assert isinstance(numbers().take_batch(2, batch_format="pandas"), pd.DataFrame)
    with pytest.raises(ValueError, match="empty"):
        numbers().limit(0).take_batch()


def test_show_prints_rows(capsys: pytest.CaptureFixture[str]) -> None:
    numbers().show(2)
    assert capsys.readouterr().out == "{'id': 0}\n{'id': 1}\n"


def test_count_runs_the_plan_only_if_it_has_to(settings: DataContext) -> None:
    def fails(row: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("was called")

    assert numbers().map(fails).limit(5).count() == 5
    with pytest.raises(ValueError, match="was called"):
        numbers().map(fails).filter(lambda row: True).count()


def test_the_schema_is_found_without_running_more_than_the_start() -> None:
    ds = numbers().map(lambda row: {"x": row["id"] / 2, "name": "n"})
    assert ds.schema(fetch_if_missing=False) is None
    schema = ds.schema()
    assert schema is not None
    assert dict(zip(schema.names, schema.types, strict=True)) == {"x": pa.float64(), "name": pa.string()}
    assert ds.columns() == ["x", "name"]


def test_a_block_of_nulls_does_not_break_the_schema() -> None:
    ds = numbers(8, blocks=4).map(lambda row: {"x": None if row["id"] < 4 else row["id"]})
    assert ds.materialize().schema().types == [pa.int64()]
    assert [row["x"] for row in ds.sort("x").take_all()] == [4, 5, 6, 7, None, None, None, None]


def test_batches_of_any_size_in_order() -> None:
    batches = list(numbers(10, blocks=3).iter_batches(batch_size=4))
    assert [batch["id"].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert len(list(numbers(10, blocks=3).iter_batches(batch_size=4, drop_last=True))) == 2
    assert [len(batch["id"]) for batch in numbers(10, blocks=2).iter_batches(batch_size=None)] == [5, 5]


def test_an_iterable_starts_over_each_time() -> None:
    batches = numbers(4).iter_batches(batch_size=2)
    assert [len(list(batches)) for _ in range(2)] == [2, 2]


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_leaving_an_iteration_early_leaves_nothing_running(prefetch: int) -> None:
    before = set(threading.enumerate())  # some of an earlier test may still be ending
    for _ in numbers(1000, blocks=50).iter_batches(batch_size=1, prefetch_batches=prefetch):
        break
    left = set(threading.enumerate()) - before
    assert all(map(is_background_thread, left)), "only those that end by themselves, a moment later"


def test_batches_are_shuffled_within_a_buffer() -> None:
    batches = numbers(100).iter_batches(batch_size=10, local_shuffle_buffer_size=50, local_shuffle_seed=1)
    found = [number for batch in batches for number in batch["id"].tolist()]
    assert found != list(range(100))
    assert sorted(found) == list(range(100))


def test_an_error_reaches_whoever_iterates() -> None:
    def fails_late(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 15:
            raise ValueError("at fifteen")
        return row

    with pytest.raises(ValueError, match="at fifteen"):
        for _ in numbers().map(fails_late).iter_batches(batch_size=2):
            pass


def test_torch_batches_have_the_types_that_were_asked_for() -> None:
    torch = pytest.importorskip("torch")
    ds = numbers(4).map_batches(lambda batch: {"a": batch["id"], "b": batch["id"] / 2})
    [batch] = ds.iter_torch_batches(batch_size=4, dtypes={"a": torch.int32})
    assert batch["a"].dtype == torch.int32
    assert batch["b"].tolist() == [0.0, 0.5, 1.0, 1.5]
    batch["a"] += 1  # what a program gets is its own
    [stacked] = ds.iter_torch_batches(batch_size=4, collate_fn=lambda batch: torch.as_tensor(batch["a"] + 1))
    assert stacked.tolist() == [1, 2, 3, 4]


def test_a_collate_function_says_what_it_gets() -> None:
    pytest.importorskip("torch")

    class Rows(ArrowBatchCollateFn):
        def __call__(self, batch: pa.Table) -> int:
            assert isinstance(batch, pa.Table)
            return batch.num_rows

    assert list(numbers(5).iter_torch_batches(batch_size=2, collate_fn=Rows())) == [2, 2, 1]


def test_text_cannot_be_a_tensor_and_the_error_says_what_to_do() -> None:
    pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"(?s)'s'.*select_columns"):
        list(skate.data.from_items([{"s": "text"}]).iter_torch_batches())


def test_a_dataset_that_is_kept_is_not_made_again(tmp_path: Any) -> None:
    def noted(row: dict[str, Any]) -> dict[str, Any]:
        with open(tmp_path / "calls", "a") as file:
            file.write("x")
        return row

    kept = numbers(6).map(noted).materialize()
    assert kept.count() == 6
    assert len(kept.take_all()) == len(kept.take_all()) == 6
    assert (tmp_path / "calls").read_text() == "x" * 6
    assert kept.num_blocks() == 4
    assert kept.size_bytes() == 48


def test_other_libraries_get_the_rows() -> None:
    ds = numbers(6, blocks=2)
    assert ds.to_pandas()["id"].tolist() == list(range(6))
    with pytest.raises(ValueError, match="more than 5 rows, the limit"):
        ds.to_pandas(limit=5)
    assert len(ds.to_pandas(limit=float("inf"))) == len(ds.to_pandas(limit=6)) == 6


def test_a_dataframe_has_the_types_of_arrow_unless_it_was_one_before(settings: DataContext) -> None:
    rows = [
        {"i": 1, "f": 1.5, "s": "x", "l": [1], "n": None},
        {"i": None, "f": None, "s": None, "l": None, "n": None},
    ]
    kinds = {
        "i": "int64[pyarrow]",
        "f": "double[pyarrow]",
        "s": "string[pyarrow]",
        "l": "list<item: int64>[pyarrow]",
    }
    dtypes = skate.data.from_items(rows, override_num_blocks=1).to_pandas().dtypes
    assert {name: str(kind) for name, kind in dtypes.items()} == {**kinds, "n": "object"}
    frame = pd.DataFrame({"i": [1, 2], "s": ["x", "y"]})
    assert skate.data.from_pandas(frame).to_pandas().dtypes.equals(frame.dtypes)
    settings.enable_arrow_backed_pandas_conversion = False
    assert str(skate.data.range(2).to_pandas()["id"].dtype) == "int64"


def test_rows_that_were_arrow_in_between_have_types_of_arrow() -> None:
    ds = skate.data.from_pandas(pd.DataFrame({"i": [1, 2]}))
    again = ds.map_batches(lambda table: table, batch_format="pyarrow")
    assert str(again.to_pandas()["i"].dtype) == "int64[pyarrow]"
    [table] = ds.iter_batches(batch_format="pyarrow")
    assert table.schema.metadata is None


@pytest.mark.starts_session
def test_frames_of_blocks_have_the_types_of_the_whole_frame(settings: DataContext) -> None:
    rows = skate.data.from_items([{"i": 1}, {"i": 2}], override_num_blocks=2)
    assert [str(frame["i"].dtype) for frame in skate.get(rows.to_pandas_refs())] == ["int64[pyarrow]"] * 2
    settings.enable_arrow_backed_pandas_conversion = False
    assert [str(frame["id"].dtype) for frame in skate.get(skate.data.range(1).to_pandas_refs())] == ["int64"]


def test_an_iterator_can_be_used_again() -> None:
    iterator = numbers(5).iterator()
    assert [len(list(iterator.iter_rows())) for _ in range(2)] == [5, 5]
    assert iterator.materialize().count() == 5
    with pytest.raises(TypeError, match="iter_rows"):
        iter(iterator)


def test_order_is_kept_however_long_blocks_take() -> None:
    def slow_first(batch: dict[str, Any]) -> dict[str, Any]:
        total = 0.0
        for _ in range(2000 if batch["id"][0] == 0 else 1):
            total += float(np.sum(np.arange(1000)))
        return batch

    found = numbers(40, blocks=8).map_batches(slow_first).take_all()
    assert [row["id"] for row in found] == list(range(40))


def test_stats_say_where_the_time_went() -> None:
    ds = numbers(6, blocks=2).map(lambda row: row)
    assert "not been executed" in ds.stats()
    ds.take_all()
    text = ds.stats()
    assert "ReadRange->Map(<lambda>): 2 tasks executed, 2 blocks produced" in text
    assert "Time in user code" in text


def test_explain_shows_the_plan_before_and_after(capsys: pytest.CaptureFixture[str]) -> None:
    numbers().map(lambda row: row).limit(3).explain()
    before, _, after = capsys.readouterr().out.partition("Optimized")
    assert before.index("Limit[3]") < before.index("Map(<lambda>)")
    assert after.index("Map(<lambda>)") < after.index("Limit[3]")


def test_whoever_asks_for_no_format_gets_frames_where_rows_came_as_frames(tmp_path: Path) -> None:
    ds = skate.data.from_pandas(pd.DataFrame({"x": [1, 2], "y": [3, 4]}))
    for each in (ds, ds.select_columns(["x"]), ds.sort("x"), ds.filter(expr="x > 1")):
        assert isinstance(next(iter(each.iter_batches(batch_format=None))), pd.DataFrame)
    assert isinstance(skate.data.range(2).take_batch(batch_format=None), pa.Table)
    ds.write_parquet(str(tmp_path))
    assert isinstance(skate.data.read_parquet(str(tmp_path)).take_batch(batch_format=None), pa.Table)
    assert pq.read_schema(next(tmp_path.glob("*.parquet"))).metadata is None  # a file tells nothing of it
