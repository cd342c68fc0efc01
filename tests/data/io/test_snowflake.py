"""Snowflake, behind a stand-in for its connector that SQLite answers."""

from __future__ import annotations

import sqlite3
import sys
import types
import zlib
from pathlib import Path
from typing import Any

import pytest

import skate
from tests.data.io.support import read_rows


class Cursor:
    """A cursor with the connector's placeholders."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def execute(self, sql: str, params: Any = ()) -> Any:
        return self._cursor.execute(sql.replace("%s", "?"), params)

    def executemany(self, sql: str, rows: Any) -> Any:
        return self._cursor.executemany(sql.replace("%s", "?"), rows)


class Connection(sqlite3.Connection):
    def cursor(self, *_: Any) -> Any:
        return Cursor(super().cursor())


def connect(*, account: str, user: str) -> sqlite3.Connection:
    assert user == "me"
    made = sqlite3.connect(account, factory=Connection)
    made.create_function("HASH", 1, lambda value: zlib.crc32(str(value).encode()) - 2**31)
    return made


@pytest.fixture
def parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    connector: Any = types.ModuleType("snowflake.connector")
    connector.connect = connect
    package: Any = types.ModuleType("snowflake")
    package.connector = connector
    monkeypatch.setitem(sys.modules, "snowflake", package)
    monkeypatch.setitem(sys.modules, "snowflake.connector", connector)
    parameters = {"account": str(tmp_path / "db"), "user": "me"}
    made = connect(**parameters)
    made.execute("CREATE TABLE numbers (n INTEGER, s TEXT)")
    made.close()
    return parameters


@pytest.mark.usefixtures("session")
def test_rows_are_written_and_read_back(parameters: dict[str, Any]) -> None:
    rows = [{"n": number, "s": f"text {number}"} for number in range(20)]
    skate.data.from_items(rows, override_num_blocks=2).write_snowflake("numbers", parameters)
    found = skate.data.read_snowflake("SELECT * FROM numbers", parameters)
    assert sorted(found.take_all(), key=lambda row: row["n"]) == rows


@pytest.mark.usefixtures("session")
def test_a_query_is_cut_by_the_hash_of_columns(parameters: dict[str, Any]) -> None:
    rows = [{"n": number, "s": ""} for number in range(20)]
    skate.data.from_items(rows).write_snowflake("numbers", parameters)
    found = skate.data.read_snowflake("SELECT n FROM numbers", parameters, shard_keys=["n"])
    source = found._node.source
    assert len(source.get_read_tasks(3)) == 3
    assert sorted(row["n"] for row in read_rows(source, 3)) == list(range(20))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "snowflake.connector", None)
    with pytest.raises(ImportError, match=r"read_snowflake needs snowflake-connector-python: pip install"):
        skate.data.read_snowflake("SELECT 1", {})
    with pytest.raises(ImportError, match=r"write_snowflake needs snowflake-connector-python"):
        skate.data.range(1).write_snowflake("t", {})
