from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from skate.data._block import tensors
from skate.data._block.objects import from_objects
from skate.data._io import parquet_rows
from skate.data._io.parquet import ParquetDatasource
from skate.data._io.parquet_sink import ParquetDatasink
from skate.data._io.pickled_columns import ALLOW_PICKLED
from skate.data.context import DataContext
from skate.data.datasource import FilenameProvider, Partitioning, SaveMode
from skate.data.exceptions import FileReadError
from skate.data.expressions import col, udf
from tests.data.io.support import blocks, read, read_rows, write

TABLE = pa.table({"n": range(100), "s": [f"text {i}" for i in range(100)]})


@pytest.fixture
def one_file(tmp_path: Path) -> Path:
    path = tmp_path / "one.parquet"
    pq.write_table(TABLE, path, row_group_size=10)
    return path


@pytest.fixture
def partitioned(tmp_path: Path) -> Path:
    table = pa.table(
        {"n": range(6), "year": [2023, 2024] * 3, "country": ["fr", "fr", "de", "de", None, None]}
    )
    write(ParquetDatasink(tmp_path / "parts", partition_cols=["year", "country"]), table)
    return tmp_path / "parts"


def test_rows_come_back_in_order(one_file: Path) -> None:
    assert read(ParquetDatasource(one_file), parallelism=3).equals(TABLE)


def test_one_file_is_read_by_several_tasks(one_file: Path) -> None:
    tasks = ParquetDatasource(one_file).get_read_tasks(4)
    assert [task.metadata.num_rows for task in tasks] == [30, 20, 30, 20]
    assert len({task.identity for task in tasks}) == 4
    assert {tuple(task.metadata.input_files or ()) for task in tasks} == {(str(one_file),)}


def test_footers_tell_rows_schema_and_size_without_reading(one_file: Path) -> None:
    source = ParquetDatasource(one_file)
    assert source.num_rows() == 100
    assert source.schema() == TABLE.schema
    assert source.estimate_inmemory_data_size() == pytest.approx(TABLE.nbytes, rel=3)


def test_a_huge_row_group_is_read_in_pieces(tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(1_000_000)})
    pq.write_table(table, tmp_path / "x.parquet")
    context = DataContext(target_max_block_size=1 << 20)
    (task,) = ParquetDatasource(tmp_path).get_read_tasks(1, data_context=context)
    found = list(task())
    assert max(block.nbytes for block in found) <= 1 << 20
    assert pa.concat_tables(found).equals(table)


def test_strings_that_a_dictionary_hides_do_not_make_huge_blocks(tmp_path: Path) -> None:
    table = pa.table({"x": ["y" * 1000] * 200_000})  # a few kilobytes as a file
    pq.write_table(table, tmp_path / "x.parquet")
    context = DataContext(target_max_block_size=32 << 20)
    (task,) = ParquetDatasource(tmp_path).get_read_tasks(1, data_context=context)
    sizes = [block.nbytes for block in task()]
    assert sum(sizes) > 200_000_000
    assert max(sizes) < 150 << 20


@pytest.mark.parametrize("batch_size", [None, 7])
def test_text_that_repeats_is_decoded_to_text(
    tmp_path: Path, batch_size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [None if row % 11 == 0 else f"word {row % 5}" for row in range(1000)]
    table = pa.table(
        {
            "few": words,
            "many": [f"{row:06}" for row in range(1000)],
            "bytes": pa.array(words).cast(pa.binary()),
            "large": pa.array(words).cast(pa.large_string()),
            "coded": pa.array(words).dictionary_encode(),
            "list": [[word] for word in words],
        }
    )
    pq.write_table(table, tmp_path / "words.parquet", row_group_size=300)
    monkeypatch.setattr(parquet_rows, "_MAX_DICTIONARY_BYTES", 1000)
    found = pa.concat_tables(blocks(ParquetDatasource(str(tmp_path), batch_size=batch_size)))
    assert found.schema == table.schema
    assert found.combine_chunks() == table.combine_chunks()
    parquet, repeating = parquet_rows.open_file(pa.OSFile(str(tmp_path / "words.parquet")), [0], {})
    parquet.close()
    assert repeating == {"few"}


def test_text_that_a_dictionary_hides_is_decoded_to_chunks_with_valid_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parquet_rows, "_MAX_TEXT_BYTES", 50)
    words = 10 * ["a word", None, "two"]
    chunks = list(parquet_rows._decode_chunk(pa.array(words).dictionary_encode()))
    assert [word for chunk in chunks for word in chunk.to_pylist()] == words
    assert {len(chunk) for chunk in chunks} == {8, 6}


def test_columns_are_read_in_the_order_in_which_they_are_named(one_file: Path) -> None:
    assert read(ParquetDatasource(one_file, columns=["s", "n"])).column_names == ["s", "n"]
    projected = ParquetDatasource(one_file).apply_projection(["s"])
    assert projected is not None
    assert projected.schema() == pa.schema([("s", pa.string())])
    assert read(projected).column_names == ["s"]


def test_a_column_that_does_not_exist_is_an_error_that_names_the_closest(one_file: Path) -> None:
    with pytest.raises(ValueError, match=r"'num'.*did you mean 'n'|'num'.*the columns are"):
        ParquetDatasource(one_file, columns=["num"]).schema()


def test_no_columns_at_all_still_count_rows(one_file: Path) -> None:
    projected = ParquetDatasource(one_file).apply_projection([])
    assert projected is not None
    assert sum(block.num_rows for block in blocks(projected)) == 100


def test_partition_values_become_columns(partitioned: Path) -> None:
    rows = read_rows(ParquetDatasource(partitioned))
    assert sorted(rows, key=lambda row: row["n"])[1] == {"n": 1, "year": "2024", "country": "fr"}
    assert sorted(rows, key=lambda row: row["n"])[5] == {"n": 5, "year": "2024", "country": None}
    typed = ParquetDatasource(partitioned, partitioning=Partitioning("hive", field_types={"year": int}))
    assert typed.schema() == pa.schema({"n": pa.int64(), "year": pa.int64(), "country": pa.string()})


def test_partition_columns_can_be_chosen_and_left_out(partitioned: Path) -> None:
    assert read(ParquetDatasource(partitioned, columns=["n"])).column_names == ["n"]
    assert read(ParquetDatasource(partitioned, columns=["year"])).column_names == ["year"]
    assert read(ParquetDatasource(partitioned, partitioning=None)).column_names == ["n"]


def test_a_column_in_the_file_goes_before_the_one_in_the_path(tmp_path: Path) -> None:
    (tmp_path / "year=2024").mkdir()
    pq.write_table(pa.table({"year": [2024]}), tmp_path / "year=2024" / "x.parquet")
    assert read_rows(ParquetDatasource(tmp_path)) == [{"year": 2024}]


def test_a_predicate_leaves_out_files_row_groups_and_rows(one_file: Path, partitioned: Path) -> None:
    pushed = ParquetDatasource(one_file).apply_predicate((col("n") >= 25) & (col("n") < 28))
    assert pushed is not None
    source, residual = pushed
    assert residual is None
    assert source.num_rows() is None
    assert read(source)["n"].to_pylist() == [25, 26, 27]
    pushed = ParquetDatasource(partitioned).apply_predicate((col("year") == "2024") & (col("n") > 1))
    assert pushed is not None
    assert all(
        "year=2024" in path
        for task in pushed[0].get_read_tasks(9)
        for path in task.metadata.input_files or ()
    )
    assert sorted(read(pushed[0])["n"].to_pylist()) == [3, 5]


def test_row_groups_that_cannot_match_are_not_read(one_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_groups: list[int] = []
    original = pq.ParquetFile.read_row_group

    def watched(self: pq.ParquetFile, group: int, **options: Any) -> pa.Table:
        read_groups.append(group)
        return original(self, group, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", watched)
    pushed = ParquetDatasource(one_file).apply_predicate(col("n") == 42)
    assert pushed is not None
    (task,) = pushed[0].get_read_tasks(1)
    assert [row for block in task() for row in block["n"].to_pylist()] == [42]
    assert read_groups == [4]


def test_a_predicate_may_read_columns_that_are_not_handed_out(one_file: Path) -> None:
    pushed = ParquetDatasource(one_file, columns=["s"]).apply_predicate(col("n") == 42)
    assert pushed is not None
    assert read_rows(pushed[0]) == [{"s": "text 42"}]
    given = ParquetDatasource(one_file, columns=["s"], filter=pc.field("n") == 42)
    assert read_rows(given) == [{"s": "text 42"}]


def test_a_predicate_that_arrow_cannot_compute_is_not_taken(one_file: Path) -> None:
    @udf(return_dtype=pa.bool_())
    def odd(column: pa.Array) -> pa.Array:
        return pc.equal(pc.bit_wise_and(column, 1), 1)

    assert ParquetDatasource(one_file).apply_predicate(odd(col("n"))) is None


def test_predicates_add_up(one_file: Path) -> None:
    first = ParquetDatasource(one_file).apply_predicate(col("n") > 40)
    assert first is not None
    second = first[0].apply_predicate(col("n") < 43)
    assert second is not None
    assert read(second[0])["n"].to_pylist() == [41, 42]


def test_files_with_other_columns_and_types_share_one_schema(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.nulls(2)}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": ["x"], "b": pa.array([1], pa.int32())}), tmp_path / "2.parquet")
    pq.write_table(pa.table({"b": pa.array([2], pa.int64()), "a": ["y"]}), tmp_path / "3.parquet")
    source = ParquetDatasource(tmp_path)
    assert source.schema() == pa.schema({"a": pa.string(), "b": pa.int64()})
    found = blocks(source, parallelism=3)
    assert {tuple(zip(block.schema.names, block.schema.types, strict=True)) for block in found} == {
        (("a", pa.string()), ("b", pa.int64()))
    }
    assert pa.concat_tables(found).to_pylist()[1:3] == [{"a": None, "b": None}, {"a": "x", "b": 1}]


def test_a_predicate_holds_for_files_that_lack_the_column_or_hold_nulls(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.nulls(2), "n": [0, 1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"n": [2]}), tmp_path / "2.parquet")
    pq.write_table(pa.table({"a": ["x"], "n": [3]}), tmp_path / "3.parquet")
    pushed = ParquetDatasource(tmp_path).apply_predicate(col("a") == "x")
    assert pushed is not None
    assert read_rows(pushed[0]) == [{"a": "x", "n": 3}]
    pushed = ParquetDatasource(tmp_path).apply_predicate(col("a").is_null())
    assert pushed is not None
    assert read(pushed[0])["n"].to_pylist() == [0, 1, 2]


def test_types_that_have_nothing_in_common_are_an_error_that_names_the_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [[1]]}), tmp_path / "2.parquet")
    with pytest.raises(TypeError, match=r"'a'"):
        ParquetDatasource(tmp_path).schema()


def test_a_schema_can_be_given(one_file: Path) -> None:
    schema = pa.schema({"n": pa.float32()})
    assert read(ParquetDatasource(one_file, schema=schema)).schema == schema


def test_paths_and_row_hashes_can_be_included(one_file: Path) -> None:
    source = ParquetDatasource(one_file, columns=["n"], include_paths=True, include_row_hash=True)
    table = read(source, parallelism=3)
    assert table.column_names == ["n", "path", "row_hash"]
    assert set(table["path"].to_pylist()) == {str(one_file)}
    assert len(set(table["row_hash"].to_pylist())) == 100
    # The same at every read, whatever is read with it and however it is cut.
    pushed = source.apply_predicate(col("n") == 57)
    assert pushed is not None
    assert read_rows(pushed[0]) == table.slice(57, 1).to_pylist()


def test_a_corrupt_file_among_good_ones_is_named(tmp_path: Path) -> None:
    for name in "abc":
        pq.write_table(TABLE, tmp_path / f"{name}.parquet")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 this is none PAR1")
    with pytest.raises((FileReadError, OSError), match=r"b.parquet"):
        ParquetDatasource(tmp_path).schema()


def test_a_file_whose_pages_are_corrupt_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path, compression="snappy", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[4:600] = b"\xff" * 596
    path.write_bytes(data)
    with pytest.raises((FileReadError, OSError), match=r"a.parquet"):
        read(ParquetDatasource(path))


@pytest.mark.parametrize("table", [pa.table({}), pa.table({"a": pa.array([], pa.int64())})])
def test_an_empty_file_has_no_rows(tmp_path: Path, table: pa.Table) -> None:
    pq.write_table(table, tmp_path / "x.parquet")
    source = ParquetDatasource(tmp_path)
    assert source.num_rows() == 0
    assert read(source).num_rows == 0


def test_a_file_without_row_groups_has_no_rows(tmp_path: Path) -> None:
    with pq.ParquetWriter(tmp_path / "x.parquet", TABLE.schema):
        pass
    assert read(ParquetDatasource(tmp_path)).schema == TABLE.schema


def test_tensors_come_back(tmp_path: Path) -> None:
    table = pa.table({"t": tensors.from_ndarray(np.arange(24).reshape(4, 2, 3))})
    write(ParquetDatasink(tmp_path), table)
    assert read(ParquetDatasource(tmp_path)).equals(table)


def test_raw_bytes_can_be_read_as_tensors(tmp_path: Path) -> None:
    arrays = np.arange(12, dtype=np.int16).reshape(2, 2, 3)
    pq.write_table(pa.table({"t": [array.tobytes() for array in arrays]}), tmp_path / "x.parquet")
    source = ParquetDatasource(tmp_path, tensor_column_schema={"t": (np.int16, (2, 3))})
    table = read(source)
    assert table.schema == source.schema()
    np.testing.assert_array_equal(tensors.to_ndarray(table["t"].combine_chunks()), arrays)
    wrong = ParquetDatasource(tmp_path, tensor_column_schema={"t": (np.int16, (2, 2))})
    with pytest.raises(ValueError, match=r"'t' has values of.*12.*takes 8"):
        read(wrong)


def test_pickled_objects_are_read_only_if_it_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(ParquetDatasink(tmp_path), pa.table({"o": from_objects([{1, 2}])}))
    with pytest.raises(ValueError, match=f"'o'.*{ALLOW_PICKLED}"):
        read(ParquetDatasource(tmp_path))
    monkeypatch.setenv(ALLOW_PICKLED, "1")
    assert read_rows(ParquetDatasource(tmp_path)) == [{"o": {1, 2}}]


@pytest.mark.parametrize("option", [{"partitioning": "hive"}, {"filters": [("n", ">", 0)]}])
def test_options_that_have_a_place_of_their_own_are_refused(one_file: Path, option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(option))):
        ParquetDatasource(one_file, dataset_kwargs=option)


def test_options_of_the_reader_are_used(one_file: Path) -> None:
    source = ParquetDatasource(one_file, dataset_kwargs={"pre_buffer": True, "read_dictionary": ["s"]})
    assert read(source)["s"].to_pylist() == TABLE["s"].to_pylist()


def test_an_unknown_option_is_refused(one_file: Path) -> None:
    with pytest.raises(TypeError, match=r"spam"):
        ParquetDatasource(one_file, spam=1)


# ---------------------------------------------------------------- writing


def files(folder: Path) -> dict[str, pa.Table]:
    return {
        str(path.relative_to(folder)): pq.ParquetFile(path).read()
        for path in sorted(folder.rglob("*.parquet"))
    }


def test_partitions_go_into_folders_in_one_pass(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2, 1, None], "b": ["x", "y/z", "x", "x"], "n": [0, 1, 2, 3]})
    write(ParquetDatasink(tmp_path, partition_cols=["a", "b"]), table)
    found = {name: part["n"].to_pylist() for name, part in files(tmp_path).items()}
    assert found == {
        "a=1/b=x/5f3a_000000.parquet": [0, 2],
        "a=2/b=y%2Fz/5f3a_000000.parquet": [1],
        "a=__HIVE_DEFAULT_PARTITION__/b=x/5f3a_000000.parquet": [3],
    }


def test_partitions_come_back_as_they_were(tmp_path: Path) -> None:
    table = pa.table({"n": [0, 1, 2], "b": ["x", "y/z", "50% = ½"]})
    write(ParquetDatasink(tmp_path, partition_cols=["b"]), table)
    assert sorted(read_rows(ParquetDatasource(tmp_path)), key=lambda row: row["n"]) == table.to_pylist()


@pytest.mark.parametrize(
    ("flavor", "expected"), [("filename", "1_5f3a_000000.parquet"), (None, "1/5f3a_000000.parquet")]
)
def test_folders_and_names_can_do_without_keys(tmp_path: Path, flavor: str | None, expected: str) -> None:
    args = {"partitioning_flavor": flavor}
    write(
        ParquetDatasink(tmp_path, partition_cols=["a"], arrow_parquet_args=args),
        pa.table({"a": [1], "n": [2]}),
    )
    assert list(files(tmp_path)) == [expected]


def test_a_partition_column_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\['z'\].*\['n', 's'\]"):
        write(ParquetDatasink(tmp_path, partition_cols=["z"]), TABLE)


def test_files_have_at_most_the_rows_that_are_allowed(tmp_path: Path) -> None:
    write(ParquetDatasink(tmp_path, max_rows_per_file=30), TABLE)
    assert [part.num_rows for part in files(tmp_path).values()] == [30, 30, 30, 10]
    assert read(ParquetDatasource(tmp_path)).equals(TABLE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_rows_per_file": 0}, "max_rows_per_file must be a positive integer"),
        ({"min_rows_per_file": 20, "max_rows_per_file": 10}, "min_rows_per_file .* cannot be greater"),
        ({"min_bytes_per_file": -1}, "min_bytes_per_file"),
    ],
)
def test_rows_per_file_are_checked(tmp_path: Path, options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ParquetDatasink(tmp_path, **options)  # type: ignore[arg-type]


def test_row_groups_are_as_large_as_asked(tmp_path: Path) -> None:
    write(
        ParquetDatasink(
            tmp_path,
            arrow_parquet_args={"row_group_size": 50, "compression": "gzip"},
            arrow_parquet_args_fn=lambda: {"row_group_size": 25},
        ),
        TABLE,
    )
    (path,) = tmp_path.iterdir()
    metadata = pq.ParquetFile(path).metadata
    assert metadata.num_row_groups == 4
    assert metadata.row_group(0).column(0).compression == "GZIP"


def test_row_groups_of_large_rows_stay_small(tmp_path: Path) -> None:
    table = pa.table({"x": [b"x" * (1 << 20)] * 100})
    write(ParquetDatasink(tmp_path, arrow_parquet_args={"compression": "zstd"}), table)
    (path,) = tmp_path.iterdir()
    assert pq.ParquetFile(path).metadata.num_row_groups > 1


def test_rows_are_cast_to_the_schema_that_is_given(tmp_path: Path) -> None:
    schema = pa.schema({"n": pa.float32(), "s": pa.large_string()})
    write(ParquetDatasink(tmp_path, arrow_parquet_args={"schema": schema}), TABLE)
    assert pq.read_table(tmp_path).schema == schema


def test_blocks_of_one_file_share_one_schema(tmp_path: Path) -> None:
    parts = [pa.table({"a": pa.nulls(1), "b": [1]}), pa.table({"b": [2], "a": ["x"]})]
    write(ParquetDatasink(tmp_path), parts)
    assert read_rows(ParquetDatasource(tmp_path)) == [{"a": None, "b": 1}, {"a": "x", "b": 2}]


def test_appending_under_names_that_repeat_is_refused(tmp_path: Path) -> None:
    class Same(FilenameProvider):
        def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
            return f"{task_index}.parquet"

    with pytest.raises(ValueError, match=r"missing from filename template '0.parquet'"):
        write(ParquetDatasink(tmp_path, filename_provider=Same()), TABLE)
    write(ParquetDatasink(tmp_path, filename_provider=Same(), mode=SaveMode.OVERWRITE), TABLE)
    assert list(files(tmp_path)) == ["0.parquet"]


def test_a_name_without_extension_gets_one(tmp_path: Path) -> None:
    class Bare(FilenameProvider):
        def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
            return write_uuid

    write(ParquetDatasink(tmp_path, filename_provider=Bare()), TABLE)
    assert list(files(tmp_path)) == ["5f3a.parquet"]


def test_a_place_for_the_number_of_the_file_is_filled(tmp_path: Path) -> None:
    class Template(FilenameProvider):
        def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
            return f"{write_uuid}-{{i}}.parquet"

    write(ParquetDatasink(tmp_path, filename_provider=Template(), max_rows_per_file=60), TABLE)
    assert list(files(tmp_path)) == ["5f3a-0.parquet", "5f3a-1.parquet"]
