"""Mistakes in calls that make datasets and write them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet

import skate.data as data
from skate.data._read_options import FileOptions, TaskOptions
from skate.data._write_options import FileOptions as WriteOptions
from skate.data.datasource import Partitioning
from tests.misuse.data_support import (
    NOWHERE,
    columns,
    files,
    finished,
    of_dataset,
    on,
    path,
)
from tests.misuse.support import Mistake, mistakes


def sources() -> Iterator[Mistake]:
    """Yield mistakes in functions that make datasets of what a program holds."""
    yield from mistakes(
        "range", data.range, correct=lambda: {"n": 3}, wrong={"n": [None]}, options="override_num_block"
    )
    yield from mistakes("range", columns(TaskOptions), lambda: data.range, lambda: {"n": 3})
    yield from mistakes(
        "range_tensor", data.range_tensor, correct=lambda: {"n": 3}, wrong={"shape": [3, ("a",), (-1,)]}
    )
    yield from mistakes(
        "from_items",
        data.from_items,
        correct=lambda: {"items": [1]},
        wrong={"items": ["abc"], "override_num_blocks": [0]},
        valid={"parallelism": [-7]},
    )
    yield from mistakes("from_pandas", data.from_pandas, correct=frame, wrong={"dfs": [3, [3]]})
    yield from mistakes("from_arrow", data.from_arrow, correct=arrow_table, wrong={"tables": [3, b"abc"]})
    yield from mistakes("from_numpy", data.from_numpy, wrong={"ndarrays": ["abc", None, 3]})
    yield from mistakes("from_blocks", data.from_blocks, wrong={"blocks": [[3]]})
    yield from mistakes("from_arrow_refs", data.from_arrow_refs, wrong={"tables": [3]})
    yield from mistakes("from_pandas_refs", data.from_pandas_refs, wrong={"dfs": ["ref"]})
    yield from mistakes("from_numpy_refs", data.from_numpy_refs, wrong={"ndarrays": [[None]]})
    yield from mistakes(
        "from_huggingface",
        data.from_huggingface,
        valid={"concurrency": [], "parallelism": [-7]},
    )
    yield from mistakes("from_torch", data.from_torch, wrong={"dataset": [3]}, finish=finished)
    yield from mistakes("from_polars", data.from_polars, wrong={"df": [3]})
    yield from mistakes("from_dask", data.from_dask, wrong={"df": [3]})
    yield from mistakes("from_tf", data.from_tf, wrong={"dataset": [3]})
    yield from mistakes("from_spark", data.from_spark, wrong={"df": [3]})


def frame() -> dict[str, Any]:
    """Return the correct argument of `from_pandas`."""
    return {"dfs": arrow_table()["tables"].to_pandas()}


def arrow_table() -> dict[str, Any]:
    """Return the correct argument of `from_arrow`."""
    return {"tables": pa.table({"a": [1]})}


def readers() -> Iterator[Mistake]:
    """Yield mistakes in functions that read."""
    wrong_paths = {"paths": [3, None, [], [3], NOWHERE]}
    yield from mistakes(
        "read_parquet",
        data.read_parquet,
        correct=path("t.parquet"),
        wrong={**wrong_paths, "columns": ["id", [3], ["ids"]]},
        finish=finished,
        options="colums",
    )
    yield from mistakes(
        "read_csv", columns(FileOptions), lambda: data.read_csv, path("t.csv"), finish=finished
    )
    yield from mistakes(
        "read_csv",
        data.read_csv,
        correct=path("t.csv"),
        wrong={
            **wrong_paths,
            "partitioning": ["hive", 3],
            "partition_filter": [3],
            "shuffle": ["rows", 3],
            "filesystem": ["s3"],
            "read_options": [3],
            "parse_options": [{"delimiter": ";"}],
        },
        finish=finished,
        options="file_extension",
    )
    for name, file, reader in (
        ("read_json", "t.json", data.read_json),
        ("read_text", "t.txt", data.read_text),
        ("read_binary_files", "t.txt", data.read_binary_files),
        ("read_numpy", "t.npy", data.read_numpy),
        ("read_arrow", "t.arrow", data.read_arrow),
        ("read_orc", "t.orc", data.read_orc),
        ("read_images", "t.txt", data.read_images),
        ("read_tfrecords", "t.txt", data.read_tfrecords),
        ("read_avro", "t.txt", data.read_avro),
        ("read_webdataset", "t.txt", data.read_webdataset),
    ):
        wrong: dict[str, list[Any]] = {"paths": [3, NOWHERE]}
        if name == "read_orc":
            wrong["columns"] = [["ids"]]
        if name == "read_images":
            wrong |= {"size": [3, (1, 2, 3), ("a", "b"), (0, 4)], "mode": ["RGBX2"]}
        if name == "read_text":
            wrong |= {"encoding": ["utf-9"]}
        yield from mistakes(name, reader, correct=path(file), wrong=wrong, finish=finished, options="path")
    yield from mistakes(
        "read_sql",
        data.read_sql,
        correct=lambda: {"sql": "SELECT id FROM t", "connection_factory": connection_to_file},
        wrong={"shard_keys": ["id"]},
        finish=finished,
    )
    yield from mistakes(
        "read_datasource", data.read_datasource, wrong={"datasource": [3, "csv"]}, finish=finished
    )
    yield from mistakes(
        "read_delta",
        data.read_delta,
        correct=lambda: {"path": NOWHERE},
        finish=finished,
    )
    yield from mistakes(
        "Partitioning", Partitioning, correct=lambda: {"style": "hive"}, wrong={"style": ["hives", 3]}
    )
    yield Mistake("read_parquet", "no argument", lambda: data.read_parquet(), ("paths",))  # type: ignore[call-arg]
    yield Mistake(
        "read_parquet",
        "a CSV file",
        lambda: finished(data.read_parquet(str(files() / "t.csv"))),
        ("'parquet'",),
    )


def connection_to_file() -> Any:
    """Connect to the database among the files."""
    return sqlite3.connect(files() / "t.db")


def target() -> dict[str, Any]:
    """Return the correct arguments of a writer of files."""
    return {"path": str(files() / "out")}


def writers() -> Iterator[Mistake]:
    """Yield mistakes in methods that write."""
    yield from of_dataset(
        "write_parquet",
        correct=target,
        wrong={
            "partition_cols": [["ids"], "id", []],
            "min_rows_per_file": [0],
            "mode": ["appendd", 3],
            "filename_provider": [3],
            "filesystem": ["s3"],
            "concurrency": [0],
        },
        valid={"partition_cols": [[]]},
        options="min_row_per_file",
    )
    yield from mistakes(
        "ds.write_csv",
        columns(WriteOptions),
        on("write_csv"),
        target,
        wrong={"mode": ["appendd"], "filename_provider": [3]},
        options="min_row_per_file",
    )
    for method, required in (
        ("write_json", {}),
        ("write_orc", {}),
        ("write_numpy", {"column": "id"}),
        ("write_images", {"column": "id"}),
        ("write_tfrecords", {}),
        ("write_webdataset", {}),
    ):
        yield from of_dataset(
            method,
            correct=lambda required=required: {**target(), **required},  # type: ignore[misc]
            wrong={
                "write_numpy": {"column": ["ids"]},
                "write_images": {"column": ["ids", "name"], "file_format": ["pngg"]},
                "write_webdataset": {"encoder": [3]},
            }.get(method, {}),
            options="min_row_per_file",
        )
    yield from of_dataset(
        "write_sql",
        correct=lambda: {"sql": "INSERT INTO t VALUES(?)", "connection_factory": connection_to_file},
    )
    yield from of_dataset("write_datasink", wrong={"datasink": [3, "csv"]}, valid={"concurrency": []})
    yield from of_dataset(
        "write_mongo", correct=lambda: {"uri": "mongodb://127.0.0.1", "database": "d", "collection": "c"}
    )
    yield from of_dataset("write_delta", correct=target, wrong={"mode": ["appendd"]})
