from __future__ import annotations

import functools
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skate.data._io.sql import SQLDatasink, SQLDatasource
from tests.data.io.support import read, read_rows, write


@pytest.fixture
def database(tmp_path: Path) -> Any:
    connect = functools.partial(sqlite3.connect, tmp_path / "x.db")
    connection = connect()
    connection.execute("CREATE TABLE t(n, s)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, f"text {n}") for n in range(100)])
    connection.commit()
    connection.close()
    return connect


def test_a_query_becomes_rows(database: Any) -> None:
    assert read_rows(SQLDatasource("SELECT * FROM t WHERE n < 2 ORDER BY n", database)) == [
        {"n": 0, "s": "text 0"},
        {"n": 1, "s": "text 1"},
    ]


@pytest.mark.parametrize(
    ("sql", "params"), [("SELECT n FROM t WHERE n = ?", (7,)), ("SELECT n FROM t WHERE n = :n", {"n": 7})]
)
def test_a_query_takes_values(database: Any, sql: str, params: Any) -> None:
    assert read_rows(SQLDatasource(sql, database, sql_params=params)) == [{"n": 7}]


def test_a_result_is_cut_by_a_hash_and_rows_without_key_are_kept(database: Any) -> None:
    sql = "SELECT CASE WHEN n = 5 THEN NULL ELSE n END AS n FROM t"
    source = SQLDatasource(sql, database, shard_keys=["n"], shard_hash_fn="abs")
    tasks = source.get_read_tasks(3)
    assert len(tasks) == 3
    assert sorted(read(source, parallelism=3)["n"].to_pylist(), key=lambda n: -1 if n is None else n) == [
        None,
        *(n for n in range(100) if n != 5),
    ]


def test_a_database_that_cannot_cut_is_read_by_one_task(
    database: Any, caplog: pytest.LogCaptureFixture
) -> None:
    source = SQLDatasource("SELECT * FROM t", database, shard_keys=["n"], shard_hash_fn="nosuch")
    assert len(source.get_read_tasks(3)) == 1
    assert "nosuch" in caplog.text


def test_values_of_mixed_types_come_back_as_they_are(database: Any) -> None:
    assert read_rows(SQLDatasource("SELECT 1 AS x UNION ALL SELECT 'a' ORDER BY x", database)) == [
        {"x": 1},
        {"x": "a"},
    ]


def test_rows_are_written_with_a_statement(database: Any) -> None:
    write(
        SQLDatasink("INSERT INTO t VALUES (?, ?)", database), pa.table({"n": [1000, None], "s": ["x", "y"]})
    )
    assert read_rows(SQLDatasource("SELECT * FROM t WHERE n >= 1000 OR n IS NULL ORDER BY n", database)) == [
        {"n": None, "s": "y"},
        {"n": 1000, "s": "x"},
    ]


def test_a_part_that_fails_is_not_written_at_all(database: Any) -> None:
    sink = SQLDatasink("INSERT INTO t VALUES (?, ?)", database)
    with pytest.raises(sqlite3.Error):
        write(sink, [pa.table({"n": [1000], "s": ["x"]}), pa.table({"n": [1001]})])
    assert read(SQLDatasource("SELECT COUNT(*) AS c FROM t", database))["c"].to_pylist() == [100]


def test_columns_to_cut_by_are_a_list(database: Any) -> None:
    with pytest.raises(ValueError, match=r"'n'"):
        SQLDatasource("SELECT * FROM t", database, shard_keys="n")
