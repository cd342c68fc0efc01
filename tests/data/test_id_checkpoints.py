"""Writes with checkpoints by row id: a later run skips written rows, and each id is written once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skate
from skate.data import DataContext
from skate.data._checkpointing.ids import DoneIds
from skate.data._kernels import partitioning
from skate.data.checkpoint import CheckpointBackend, CheckpointConfig
from skate.data.checkpoint.interfaces import InvalidCheckpointingConfig, InvalidCheckpointingOperators
from skate.data.datasource import BlockBasedFileDatasink, Datasink, FilenameProvider, PathPartitionFilter
from skate.data.exceptions import ResumeError
from tests.data.interruptions import fails_at, ids_in, interrupted, noted, visible

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("in_process")]


# ------------------------------------------------------------ going on


@pytest.mark.parametrize("at", [0, 37, 99])
def test_a_write_leaves_out_what_an_earlier_run_has_written(
    where: str, at: int, settings: DataContext, tmp_path: Path
) -> None:
    ids, out = tmp_path / "ids", tmp_path / "out"
    settings.checkpoint_config = CheckpointConfig("id", str(ids))

    def write() -> None:
        ds = skate.data.range(100, override_num_blocks=10).map(fails_at(at, tmp_path))
        ds.write_parquet(str(out))

    interrupted(write, tmp_path)
    before = ids_in(out)
    assert noted(ids) == before, "a row is noted as soon as it is there, and not before"
    write()
    assert ids_in(out) == list(range(100))
    if where == "here":  # elsewhere a worker may not have update_memory yet that the first run is over
        assert len(before) == at // 10 * 10
        assert len((tmp_path / "seen").read_text().split()) == 100 - len(before), (
            "done rows are left out at once"
        )
        assert not ids.exists()
    assert not noted(ids), "ids are forgotten when everything is written"


def test_ids_that_are_kept_leave_out_everything_in_the_next_run(
    where: str, keeps: Path, tmp_path: Path
) -> None:
    ds = skate.data.range(20).map(lambda row: row)
    ds.write_parquet(str(tmp_path / "out"))
    assert noted(keeps) == list(range(20))
    files = visible(tmp_path / "out")
    ds.write_parquet(str(tmp_path / "out"))
    assert visible(tmp_path / "out") == files
    skate.data.range(25).map(lambda row: row).write_parquet(str(tmp_path / "out"))
    assert ids_in(tmp_path / "out") == list(range(25)), "rows that are new are written"


@pytest.mark.starts_session
def test_rows_may_pass_through_actors_sorts_shuffles_and_unions(
    where: str, keeps: Path, tmp_path: Path
) -> None:
    class Adder:
        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return {**batch, "more": batch["double"] + 1}

    check = fails_at(47, tmp_path)

    def write() -> None:
        more = skate.data.from_items([{"id": i} for i in range(60, 70)])
        ds = skate.data.range(60, override_num_blocks=6).union(more).random_shuffle()
        ds = ds.map(check).map_batches(Adder, concurrency=2, batch_size=3).repartition(14).sort("id")
        ds.filter(lambda row: row["id"] % 5 != 0).write_parquet(str(tmp_path / "out"))

    interrupted(write, tmp_path)
    write()
    assert ids_in(tmp_path / "out") == [i for i in range(70) if i % 5]
    assert noted(keeps) == [i for i in range(70) if i % 5]


def test_rows_that_failed_are_tried_again(where: str, keeps: Path, tmp_path: Path) -> None:
    marker = tmp_path / "mended"

    def risky(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] % 4 == 0 and not marker.exists():
            raise ValueError("spam")
        return row

    ds = skate.data.range(12).map(risky, on_error="drop")
    ds.write_parquet(str(tmp_path / "out"))
    assert ids_in(tmp_path / "out") == [i for i in range(12) if i % 4]
    marker.touch()
    ds.write_parquet(str(tmp_path / "out"))
    assert ids_in(tmp_path / "out") == list(range(12))


def test_only_writes_leave_out_rows(where: str, keeps: Path, tmp_path: Path) -> None:
    ds = skate.data.range(10).map(lambda row: row)
    ds.write_parquet(str(tmp_path / "out"))
    assert ds.count() == 10
    assert len(ds.take_all()) == 10
    assert ds.materialize().count() == 10
    assert noted(keeps) == list(range(10))


@pytest.mark.parametrize("form", ["csv", "json", "tfrecords", "images"])
def test_all_formats_of_files_can_be_gone_on_with(where: str, form: str, keeps: Path, tmp_path: Path) -> None:
    out, check = tmp_path / "out", fails_at(5, tmp_path)

    def row_of(row: dict[str, Any]) -> dict[str, Any]:
        check(row)
        return {
            "id": row["id"],
            "x": np.full((2, 2, 3), row["id"], np.uint8) if form == "images" else row["id"],
        }

    ds = skate.data.range(8, override_num_blocks=4).map(row_of)
    options: dict[str, Any] = {"column": "x"} if form == "images" else {}
    write = lambda: getattr(ds, f"write_{form}")(str(out), **options)  # noqa: E731
    interrupted(write, tmp_path)
    write()
    DataContext.get_current().checkpoint_config = None
    read = getattr(skate.data, f"read_{form}")(str(out)).take_all()
    assert sorted(int(np.max(row["image" if form == "images" else "x"])) for row in read) == list(range(8))


def test_folders_of_values_go_with_their_ids(where: str, keeps: Path, tmp_path: Path) -> None:
    check = fails_at(11, tmp_path)
    ds = skate.data.range(16, override_num_blocks=4).map(check).map(lambda row: {**row, "g": row["id"] % 2})
    write = lambda: ds.write_parquet(str(tmp_path / "out"), partition_cols=["g"], max_rows_per_file=1)  # noqa: E731
    interrupted(write, tmp_path)
    write()
    assert ids_in(tmp_path / "out") == list(range(16))
    assert len(visible(tmp_path / "out")) == 16


# ------------------------------------------------------------ ids


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.int8(), pa.int64(), pa.float64(), pa.string(), pa.large_string(), pa.binary(), pa.binary(4)),
        *(pa.timestamp("ns"), pa.date32(), pa.decimal128(6, 2), pa.dictionary(pa.int32(), pa.string())),
    ],
    ids=str,
)
def test_ids_of_any_type_with_an_order_are_found(kind: pa.DataType) -> None:
    def of(numbers: range) -> pa.Array:
        if pa.types.is_decimal(kind):
            return pa.array([Decimal(number) / 4 for number in numbers], kind)
        if pa.types.is_temporal(kind):
            return pa.array(numbers, pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return pa.array(numbers, kind)
        texts = [f"{number:04}" for number in numbers]
        if pa.types.is_dictionary(kind):
            return pa.array(texts).dictionary_encode()
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        return pa.array(texts if is_text else [text.encode() for text in texts], kind)

    done = DoneIds("key", pa.chunked_array([of(range(3, 6)), of(range(20, 30))]))
    block = pa.table({"key": of(range(100)), "row": range(100)})
    left = done(block, 0)
    assert left["row"].to_pylist() == [*range(3), *range(6, 20), *range(30, 100)]
    assert left.schema == block.schema


def test_numbers_and_texts_are_found_in_wider_types() -> None:
    done = DoneIds("id", pa.chunked_array([pa.array([1, 3], pa.int64())]))
    assert done(pa.table({"id": pa.array([1, 2, 3], pa.int16())}), 0)["id"].to_pylist() == [2]
    done = DoneIds("id", pa.chunked_array([pa.array(["a"], pa.large_string())]))
    assert done(pa.table({"id": ["a", "b"]}), 0)["id"].to_pylist() == ["b"]


def test_ids_with_the_hash_of_a_done_one_are_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    same = lambda block, keys, seed=0: np.array([i % 2 for i in range(block.num_rows)], np.uint64)  # noqa: E731
    monkeypatch.setattr(partitioning, "key_hashes", same)
    done = DoneIds("id", pa.chunked_array([[0, 1, 2, 3]]))
    assert done(pa.table({"id": [8, 1, 2, 3, 4, 5]}), 0)["id"].to_pylist() == [8, 4, 5]


def test_ids_that_change_their_type_on_the_way_are_an_error(where: str, keeps: Path, tmp_path: Path) -> None:
    ds = skate.data.range(4).map(lambda row: {"id": str(row["id"])})
    ds.write_csv(str(tmp_path / "out"))
    with pytest.raises(
        InvalidCheckpointingConfig, match=r"type int64 where they are read, and were of type string"
    ):
        ds.write_csv(str(tmp_path / "out"))


def test_a_column_that_is_not_there_is_an_error(where: str, settings: DataContext, tmp_path: Path) -> None:
    settings.checkpoint_config = CheckpointConfig("key", str(tmp_path / "ids"))
    ds = skate.data.range(4)
    with pytest.raises(
        ValueError,
        match=r"ID column key is absent in the block to be written, or already in what is read, which has 'id'",
    ):
        ds.write_parquet(str(tmp_path / "out"))
    with pytest.raises(ValueError, match=r"ids have to come from the source"):
        ds.map(lambda row: {"key": row["id"]}).write_parquet(str(tmp_path / "out"))
    settings.checkpoint_config = CheckpointConfig("id", str(tmp_path / "ids"))
    with pytest.raises(ValueError, match=r"no step may drop or rename them"):
        skate.data.range(4).map(lambda row: {"key": row["id"]}).write_parquet(str(tmp_path / "out"))
    assert not visible(tmp_path / "out")


def test_rows_that_share_an_id_or_have_none_are_an_error(where: str, keeps: Path, tmp_path: Path) -> None:
    ds = skate.data.range(4).flat_map(lambda row: [row, row])
    with pytest.raises(InvalidCheckpointingConfig, match=r"rows share an id in column 'id': 0, 1"):
        ds.repartition(1).write_parquet(str(tmp_path / "out"))
    ds = skate.data.from_items([{"id": None}, {"id": 2}])
    with pytest.raises(InvalidCheckpointingConfig, match=r"rows have no value in column 'id'"):
        ds.repartition(1).write_parquet(str(tmp_path / "out"))
    ds = skate.data.from_items([{"id": [1]}, {"id": [2]}])
    with pytest.raises(InvalidCheckpointingConfig, match=r"is of type list.*numbers, strings"):
        ds.write_parquet(str(tmp_path / "out"))
    assert not visible(tmp_path / "out")
    assert not noted(keeps)


def test_ids_of_another_job_are_an_error(keeps: Path, tmp_path: Path) -> None:
    keeps.mkdir()
    pq.write_table(pa.table({"key": [1]}), keeps / "some.parquet")
    with pytest.raises(InvalidCheckpointingConfig, match=r"has no column 'id', but 'key'"):
        skate.data.range(4).write_parquet(str(tmp_path / "out"))


def test_files_of_ids_can_be_chosen_by_their_partition(settings: DataContext, tmp_path: Path) -> None:
    ids = tmp_path / "ids"
    for day, done in (("1", [0, 1]), ("2", [2])):
        (ids / f"day={day}").mkdir(parents=True)
        pq.write_table(pa.table({"id": done}), ids / f"day={day}" / "some.parquet")
    settings.checkpoint_config = CheckpointConfig(
        "id",
        str(ids),
        checkpoint_path_partition_filter=PathPartitionFilter.of(lambda values: values.get("day") == "1"),
    )
    skate.data.range(4).write_parquet(str(tmp_path / "out"))
    assert ids_in(tmp_path / "out") == [2, 3]
    assert (ids / "day=2" / "some.parquet").exists(), "what was not believed is not removed"


# ------------------------------------------------------------ what cannot be resumed


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda ds: ds.limit(3), "Limit"),
        (lambda ds: ds.groupby("id").count(), "Aggregate"),
        (lambda ds: ds.groupby("id").map_groups(lambda group: group), "MapGroups"),
        (lambda ds: ds.join(ds, "inner", on=("id",), num_partitions=1), "Join"),
        (lambda ds: ds.zip(ds), "Zip"),
        (lambda ds: ds.random_sample(0.5), "Filter"),
    ],
)
def test_plans_whose_rows_depend_on_others_are_refused(
    make: Callable[[Any], Any], name: str, keeps: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidCheckpointingOperators, match=name):
        make(skate.data.range(10)).write_parquet(str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    assert not keeps.exists()


@pytest.mark.parametrize("mode", ["overwrite", "ignore", "error"])
def test_other_modes_than_append_are_refused(mode: Any, keeps: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidCheckpointingOperators, match=f"mode='{mode}'"):
        skate.data.range(10).write_parquet(str(tmp_path / "out"), mode=mode)


def test_two_ways_to_go_on_are_refused(keeps: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidCheckpointingOperators, match="two ways"):
        skate.data.range(10).write_parquet(str(tmp_path / "out"), resume=True)


def test_sinks_that_finish_as_a_whole_are_refused(keeps: Path) -> None:
    class Whole(Datasink[int]):
        def write(self, blocks: Any, ctx: Any) -> int:
            return sum(block.num_rows for block in blocks)

        def on_write_complete(self, write_result: Any) -> None:
            pass

    with pytest.raises(InvalidCheckpointingOperators, match="finishes in on_write_complete"):
        skate.data.range(10).write_datasink(Whole())


def test_a_sink_that_hides_its_files_is_refused(keeps: Path, tmp_path: Path) -> None:
    class Silent(BlockBasedFileDatasink):
        def write(self, blocks: Any, ctx: Any) -> Any:
            super().write(blocks, ctx)

        def write_block_to_file(self, block: Any, file: Any) -> None:
            file.write(b"spam")

    with pytest.raises(InvalidCheckpointingOperators, match="has to return the list of paths"):
        skate.data.range(10).write_datasink(Silent(str(tmp_path / "out")))
    assert not visible(tmp_path / "out")


def test_files_do_not_replace_those_of_an_earlier_run(keeps: Path, tmp_path: Path) -> None:
    class Numbered(FilenameProvider):
        def get_filename_for_block(
            self, block: Any, write_uuid: str, task_index: int, block_index: int
        ) -> str:
            return f"{task_index}.csv"

    def write(rows: int) -> None:
        skate.data.range(rows, override_num_blocks=1).write_csv(
            str(tmp_path / "out"), filename_provider=Numbered()
        )

    write(4)
    before = (tmp_path / "out" / "0.csv").read_text()
    with pytest.raises(InvalidCheckpointingOperators, match="the name of another file"):
        write(8)
    assert (tmp_path / "out" / "0.csv").read_text() == before
    assert noted(keeps) == list(range(4))


def test_one_program_at_a_time_writes_to_a_folder(keeps: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out")

    def write_inside(row: dict[str, Any]) -> dict[str, Any]:
        skate.data.range(1).write_parquet(out)
        return row

    with pytest.raises(ResumeError, match="another program is writing"):
        skate.data.range(1).map(write_inside).write_parquet(out)


def test_a_sink_that_has_rows_at_once_is_warned_of(where: str, keeps: Path, tmp_path: Path) -> None:
    base = str(tmp_path / "base.db")
    with sqlite3.connect(base) as connection:
        connection.execute("CREATE TABLE squares (id INTEGER, double INTEGER)")
    connection.close()
    connect = lambda: sqlite3.connect(base)  # noqa: E731
    ds = skate.data.range(20, override_num_blocks=4).map(fails_at(17, tmp_path))
    write = lambda: ds.write_sql("INSERT INTO squares VALUES (?, ?)", connect)  # noqa: E731
    with pytest.warns(UserWarning, match="written again by the next one"):
        interrupted(write, tmp_path)
    with pytest.warns(UserWarning, match="SQLDatasink"):
        write()
    connection = connect()
    found = connection.execute("SELECT id FROM squares ORDER BY id").fetchall()
    connection.close()
    # Workers that were writing when the first run ended may have been stopped before they could note it.
    assert sorted({row for (row,) in found} if where == "local" else [row for (row,) in found]) == list(
        range(20)
    )
    assert sorted(set(noted(keeps))) == list(range(20))


# ------------------------------------------------------------ settings


def test_settings_may_be_a_dict(settings: DataContext, tmp_path: Path) -> None:
    with pytest.warns(FutureWarning, match="override_backend"):
        settings.checkpoint_config = {  # type: ignore[assignment]  # as users write it
            "id_column": "id",
            "checkpoint_path": str(tmp_path),
            "override_backend": "CLOUD_OBJECT_STORAGE",
        }
    assert isinstance(settings.checkpoint_config, CheckpointConfig)
    assert settings.checkpoint_config.backend is CheckpointBackend.CLOUD_OBJECT_STORAGE
    assert settings.copy() == settings
    with pytest.raises(TypeError, match="a CheckpointConfig, a dict"):
        settings.checkpoint_config = "ids"  # type: ignore[assignment]
    with (
        pytest.warns(FutureWarning),
        pytest.raises(InvalidCheckpointingConfig, match="pass a CheckpointBackend"),
    ):
        CheckpointConfig("id", str(tmp_path), override_backend="DISK")  # type: ignore[arg-type]
    with pytest.raises(InvalidCheckpointingConfig, match="it can be CLOUD_OBJECT_STORAGE, FILE_STORAGE"):
        settings.checkpoint_config = {"id_column": "id", "override_backend": "DISK"}  # type: ignore[assignment]


@pytest.mark.parametrize("column", ["", 1, None])
def test_a_column_needs_a_name(column: Any) -> None:
    with pytest.raises(InvalidCheckpointingConfig, match="Checkpoint ID column"):
        CheckpointConfig(column, "/ids")


@pytest.mark.parametrize("path", ["ids", "s3:/ids", "s4://ids"])
def test_a_path_must_name_one_place(path: str) -> None:
    with pytest.raises(InvalidCheckpointingConfig, match="Invalid checkpoint path"):
        CheckpointConfig("id", path)


def test_the_environment_may_say_where_ids_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_DATA_CHECKPOINT_PATH_BUCKET", raising=False)
    with pytest.raises(InvalidCheckpointingConfig, match=r"set CheckpointConfig\.checkpoint_path"):
        CheckpointConfig("id")
    monkeypatch.setenv("RAY_DATA_CHECKPOINT_PATH_BUCKET", str(tmp_path))
    assert CheckpointConfig("id").checkpoint_path == f"{tmp_path}/ray_data_checkpoint"
