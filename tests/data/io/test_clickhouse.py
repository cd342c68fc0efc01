"""ClickHouse behind a server that speaks its HTTP interface, and runs its queries with polars."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import skate
from skate.data import SinkMode
from skate.data._io.clickhouse import ClickHouseDatasink, ClickHouseDatasource, ClickHouseTableSettings
from tests.data.io.http_server import Answer, Request, serving
from tests.data.io.support import read_rows, write


class ClickHouse:
    """Tables, and the requests for them."""

    def __init__(self) -> None:
        self.tables = {"numbers": pa.table({"n": list(range(200)), "s": [f"text {n}" for n in range(200)]})}
        self.statements: list[str] = []

    def answer(self, request: Request) -> Answer:
        query = request.parameters.get("query") or request.body.decode()
        self.statements.append(query)
        if "version()" in query:
            return Answer(b"24.8.1.1\tUTC\n")
        if "system.settings" in query:
            return Answer(b"")  # no blocks
        if found := re.match(r"INSERT INTO `?(\w+)`?.* FORMAT Arrow", query, re.DOTALL):
            rows = pa.ipc.open_file(request.body).read_all()
            table = self.tables[found[1]]
            self.tables[found[1]] = pa.concat_tables([table, rows.cast(table.schema)])
            return Answer()
        if found := re.match(r"EXISTS TABLE (\w+)", query):
            return Answer(b"%d\n" % (found[1] in self.tables))
        if found := re.match(r"DROP TABLE (\w+)", query):
            del self.tables[found[1]]
            return Answer()
        if found := re.match(r"CREATE TABLE (\w+) \((.*?)\) ENGINE", query):
            types = {"Int64": pa.int64(), "String": pa.string(), "Float64": pa.float64()}
            columns = [column.split() for column in found[2].split(", ")]
            schema = pa.schema({name.strip("`"): types[type_] for name, type_ in columns})
            self.tables[found[1]] = schema.empty_table()
            return Answer()
        return self.select(query)

    def select(self, query: str) -> Answer:
        explained = query.startswith("EXPLAIN")
        statement, _, form = query.removeprefix("EXPLAIN ").strip().partition("FORMAT ")
        try:
            frames: Any = {name: pl.from_arrow(table) for name, table in self.tables.items()}
            found = pl.SQLContext(frames, eager=True).execute(statement.strip())
        except pl.exceptions.PolarsError as error:
            return Answer(f"Code: 47. DB::Exception: {error}".encode(), 500)
        if explained:
            return Answer(b"Expression\n")
        table = found.to_arrow(compat_level=pl.CompatLevel.oldest())
        out = io.BytesIO()
        make = pa.ipc.new_stream if form.strip() == "ArrowStream" else pa.ipc.new_file
        with make(out, table.schema) as writer:
            writer.write_table(table)
        return Answer(out.getvalue())


@pytest.fixture
def clickhouse() -> ClickHouse:
    pytest.importorskip("clickhouse_connect")
    return ClickHouse()


@pytest.fixture
def dsn(clickhouse: ClickHouse) -> Iterator[str]:
    with serving(clickhouse.answer) as address:
        yield address.replace("http://", "clickhouse+http://default:@") + "/default"


OPTIONS = {"client_kwargs": {"compress": False}}


def test_an_ordered_table_is_read_by_several_tasks(dsn: str) -> None:
    source = ClickHouseDatasource("numbers", dsn, order_by=(["n"], True), **OPTIONS)
    assert source.num_rows() == 200
    assert [task.metadata.num_rows for task in source.get_read_tasks(3)] == [67, 67, 66]
    assert [row["n"] for row in read_rows(source, 3)] == list(range(199, -1, -1))


def test_a_table_without_an_order_is_read_by_one_task(dsn: str) -> None:
    source = ClickHouseDatasource("numbers", dsn, columns=["s"], **OPTIONS)
    assert len(source.get_read_tasks(3)) == 1
    assert read_rows(source)[:2] == [{"s": "text 0"}, {"s": "text 1"}]


def test_a_filter_is_run_by_the_server(dsn: str) -> None:
    found = skate.data.read_clickhouse(
        table="numbers", dsn=dsn, filter="n < 3 AND s <> ';'", order_by=(["n"], False), **OPTIONS
    )
    assert [row["n"] for row in found.take_all()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("filter", "match"), [("n = 1; DROP TABLE numbers", "semicolon"), ("nosuch = 1", "nosuch.*Exception")]
)
def test_a_filter_is_checked(dsn: str, filter: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        ClickHouseDatasource("numbers", dsn, filter=filter, **OPTIONS)


def test_a_table_is_made_and_filled(clickhouse: ClickHouse, dsn: str) -> None:
    rows = [{"n": number, "s": "x"} for number in range(5)]
    given = skate.data.from_items(rows, override_num_blocks=2)
    settings = ClickHouseTableSettings(order_by="n", settings="index_granularity = 8192")
    given.write_clickhouse("new", dsn, table_settings=settings, max_insert_block_rows=1, **OPTIONS)
    assert sorted(clickhouse.tables["new"]["n"].to_pylist()) == list(range(5))
    [made] = [each for each in clickhouse.statements if each.startswith("CREATE")]
    assert "ENGINE = MergeTree() ORDER BY n SETTINGS index_granularity = 8192" in made
    assert sum(each.startswith("INSERT") for each in clickhouse.statements) == 5


def test_a_table_is_added_to_or_made_again(clickhouse: ClickHouse, dsn: str) -> None:
    part = pa.table({"n": [1000], "s": ["new"]})
    with pytest.raises(ValueError, match=r"numbers already exists.*APPEND"):
        write(ClickHouseDatasink("numbers", dsn, **OPTIONS), part)
    write(ClickHouseDatasink("numbers", dsn, SinkMode.APPEND, **OPTIONS), part)
    assert clickhouse.tables["numbers"].num_rows == 201
    write(ClickHouseDatasink("numbers", dsn, SinkMode.OVERWRITE, part.schema, **OPTIONS), part)
    assert clickhouse.tables["numbers"] == part


def test_a_table_of_unknown_columns_is_not_made(dsn: str) -> None:
    with pytest.raises(ValueError, match=r"pass schema="):
        write(ClickHouseDatasink("new", dsn, **OPTIONS), pa.table({"n": [1]}))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "clickhouse_connect", None)
    with pytest.raises(ImportError, match=r"read_clickhouse needs clickhouse-connect: pip install"):
        skate.data.read_clickhouse(table="t", dsn="clickhouse+http://127.0.0.1")
