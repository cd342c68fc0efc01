"""Delta Sharing, from a server that speaks its REST protocol and serves Parquet files."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skate
from skate.data._io.delta_sharing import DeltaSharingDatasource, parse_url, schema_of
from tests.data.io.http_server import Answer, Request, serving
from tests.data.io.support import read_rows

pytestmark = pytest.mark.usefixtures("client_libraries")
FIELDS = [
    {"name": "n", "type": "long", "nullable": True, "metadata": {}},
    {"name": "day", "type": "date", "nullable": True, "metadata": {}},
    {"name": "late", "type": "string", "nullable": True, "metadata": {}},
]


def parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


class Sharing:
    """One table in two files, of which the second has a column that was added later."""

    def __init__(self) -> None:
        self.files = {
            "/a": (parquet(pa.table({"n": [1, 2]})), "2024-01-02"),
            "/b": (parquet(pa.table({"n": [3], "late": ["x"]})), ""),
        }
        self.queries: list[dict[str, Any]] = []
        self.address = ""

    def answer(self, request: Request) -> Answer:
        if request.path in self.files:
            assert "authorization" not in request.headers
            return Answer(self.files[request.path][0])
        if request.headers.get("authorization") != "Bearer secret":
            return Answer(status=401)
        assert request.path == "/share/shares/north/schemas/sales/tables/orders/query"
        self.queries.append(json.loads(request.body))
        schema = json.dumps({"type": "struct", "fields": FIELDS})
        lines: list[dict[str, Any]] = [
            {"protocol": {"minReaderVersion": 1}},
            {
                "metaData": {
                    "id": "1",
                    "format": {"provider": "parquet"},
                    "schemaString": schema,
                    "partitionColumns": ["day"],
                    "configuration": {},
                }
            },
        ]
        for name, (data, day) in self.files.items():
            file = {"url": f"{self.address}{name}?signed=1", "id": name, "size": len(data)}
            lines.append({"file": {**file, "partitionValues": {"day": day}}})
        body = "\n".join(json.dumps(line) for line in lines).encode()
        return Answer(body, headers=(("delta-table-version", "3"), ("Content-Type", "application/x-ndjson")))


@pytest.fixture
def sharing() -> Iterator[Sharing]:
    pytest.importorskip("delta_sharing")
    made = Sharing()
    with serving(made.answer) as made.address:
        yield made


@pytest.fixture
def url(sharing: Sharing, tmp_path: Path) -> str:
    profile = {"shareCredentialsVersion": 1, "endpoint": f"{sharing.address}/share", "bearerToken": "secret"}
    (tmp_path / "config.share").write_text(json.dumps(profile))
    return f"{tmp_path / 'config.share'}#north.sales.orders"


def test_files_are_read_with_partition_values_and_later_columns(url: str) -> None:
    source = DeltaSharingDatasource(url)
    assert source.schema() == pa.schema({"n": pa.int64(), "day": pa.date32(), "late": pa.string()})
    assert len(source.get_read_tasks(2)) == 2
    rows = read_rows(source)
    assert [(row["n"], str(row["day"]), row["late"]) for row in rows] == [
        (1, "2024-01-02", None),
        (2, "2024-01-02", None),
        (3, "None", "x"),
    ]


def test_hints_reach_the_server(url: str, sharing: Sharing) -> None:
    found = skate.data.read_delta_sharing_tables(url, limit=1, version=3, json_predicate_hints="{}")
    assert found.select_columns(["n"]).take_all() == [{"n": 1}, {"n": 2}, {"n": 3}]
    [query, *_] = sharing.queries
    assert (query["limitHint"], query["version"], query["jsonPredicateHints"]) == (1, 3, "{}")


def test_a_table_without_files_keeps_its_columns(url: str, sharing: Sharing) -> None:
    sharing.files = {}
    assert skate.data.read_delta_sharing_tables(url).columns() == ["n", "day", "late"]


@pytest.mark.parametrize("url", ["config.share", "#a.b.c", "config.share#a.b", "config.share#a..c"])
def test_a_url_that_names_no_table_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"names no shared table"):
        parse_url(url)


def test_a_limit_is_checked(url: str) -> None:
    with pytest.raises(ValueError, match=r"limit is -1"):
        DeltaSharingDatasource(url, limit=-1)


def test_types_of_a_delta_schema_are_types_of_arrow() -> None:
    inner = {"type": "struct", "fields": [{"name": "d", "type": "decimal(10,2)", "nullable": False}]}
    types = {
        "list": {"type": "array", "elementType": "integer", "containsNull": True},
        "map": {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True},
        "struct": inner,
        "time": "timestamp",
    }
    fields = [{"name": name, "type": type_, "nullable": True} for name, type_ in types.items()]
    assert schema_of({"fields": fields}) == pa.schema(
        {
            "list": pa.list_(pa.int32()),
            "map": pa.map_(pa.string(), pa.float64()),
            "struct": pa.struct([pa.field("d", pa.decimal128(10, 2), nullable=False)]),
            "time": pa.timestamp("us", "UTC"),
        }
    )


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "delta_sharing", None)
    monkeypatch.setitem(sys.modules, "delta_sharing.protocol", None)
    with pytest.raises(ImportError, match=r"read_delta_sharing_tables needs delta-sharing: pip install"):
        skate.data.read_delta_sharing_tables("config.share#a.b.c")
