"""Databricks, from a server that speaks its statement API and that of Unity Catalog."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

import skate
from skate.data import CatalogAccessMode, DatabricksUnityCatalog, ReaderFormat
from skate.data._io import databricks
from skate.data._io.databricks import (
    DatabricksCredentialProvider,
    DatabricksDatasource,
    EnvironmentCredentialProvider,
    StaticCredentialProvider,
)
from tests.data.io.http_server import Answer, Request, serving
from tests.data.io.support import read_rows

pytestmark = pytest.mark.usefixtures("client_libraries")
AWS = {"access_key_id": "key", "secret_access_key": "secret", "session_token": "session"}


def stream(table: pa.Table) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


class Workspace:
    """A warehouse whose queries run for a while, and a catalog with one table."""

    def __init__(self) -> None:
        self.chunks = [pa.table({"n": [0, 1, 2]}), pa.table({"n": [3]})]
        self.state = "SUCCEEDED"
        self.polls = 0
        self.statement: dict[str, Any] = {}
        self.token = "secret"
        self.table = {"table_id": "7", "data_source_format": "DELTA"}
        self.granted: dict[str, Any] = {"url": "s3://bucket/t", "aws_temp_credentials": AWS}
        self.operations: list[str] = []
        self.address = ""

    def answer(self, request: Request) -> Answer:
        if request.path.startswith("/links/"):
            assert "authorization" not in request.headers
            return Answer(stream(self.chunks[int(request.path.rpartition("/")[2])]))
        if not request.path.startswith("/api/"):  # settings of the host, which it need not have
            return Answer(b"{}", 404, (("Content-Type", "application/json"),))
        if request.headers.get("authorization") != f"Bearer {self.token}":
            error = {"error_code": "UNAUTHENTICATED", "message": "no"}
            return Answer(json.dumps(error).encode(), 401, (("Content-Type", "application/json"),))
        found = self.found(request)
        return Answer(json.dumps(found).encode(), headers=(("Content-Type", "application/json"),))

    def found(self, request: Request) -> dict[str, Any]:
        if request.path.rstrip("/") == "/api/2.0/sql/statements":
            self.statement = json.loads(request.body)
            return {"statement_id": "s1", "status": {"state": "PENDING"}}
        if "/result/chunks/" in request.path:
            index = int(request.path.rpartition("/")[2])
            link = {"external_link": f"{self.address}/links/{index}", "chunk_index": index}
            return {"external_links": [link]}
        if "/sql/statements/s1" in request.path:
            self.polls += 1
            state = "RUNNING" if self.polls == 1 else self.state
            chunks = [
                {"chunk_index": index, "row_count": chunk.num_rows, "byte_count": chunk.nbytes}
                for index, chunk in enumerate(self.chunks)
            ]
            status = {"state": state, "error": {"message": "no such table"}}
            return {"statement_id": "s1", "status": status, "manifest": {"chunks": chunks[::-1]}}
        if request.path.startswith("/api/2.1/unity-catalog/tables/"):
            return self.table
        self.operations.append(json.loads(request.body)["operation"])
        return self.granted


@pytest.fixture
def workspace(monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    pytest.importorskip("databricks.sdk")
    monkeypatch.setattr(databricks, "_POLL_INTERVAL", 0.0)
    made = Workspace()
    with serving(made.answer) as made.address:
        yield made


@pytest.fixture
def credentials(workspace: Workspace) -> StaticCredentialProvider:
    return StaticCredentialProvider(token="secret", host=workspace.address)


def test_the_chunks_of_a_result_are_read_by_tasks(
    workspace: Workspace, credentials: StaticCredentialProvider
) -> None:
    source = DatabricksDatasource("w1", "SELECT * FROM t", "main", "default", credentials)
    assert workspace.polls == 2
    assert source.num_rows() == 4
    assert [task.metadata.num_rows for task in source.get_read_tasks(5)] == [3, 1]
    assert read_rows(source, 5) == [{"n": number} for number in range(4)]
    sent = ("statement", "warehouse_id", "catalog", "schema", "disposition", "format")
    assert [workspace.statement[key] for key in sent] == [
        *("SELECT * FROM t", "w1", "main", "default"),
        *("EXTERNAL_LINKS", "ARROW_STREAM"),
    ]


def test_a_table_is_read_with_credentials_of_the_environment(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABRICKS_HOST", workspace.address)
    monkeypatch.setenv("DATABRICKS_TOKEN", "secret")
    found = skate.data.read_databricks_tables(warehouse_id="w1", table="t")
    assert found.count() == 4
    assert workspace.statement["statement"] == "SELECT * FROM t"
    monkeypatch.delenv("DATABRICKS_TOKEN")
    with pytest.raises(ValueError, match=r"DATABRICKS_TOKEN are not set"):
        EnvironmentCredentialProvider()


def test_a_result_without_rows_is_empty(workspace: Workspace, credentials: StaticCredentialProvider) -> None:
    workspace.chunks = []
    assert DatabricksDatasource("w1", "SELECT 1", None, None, credentials).get_read_tasks(2) == []


def test_a_failed_query_says_why(workspace: Workspace, credentials: StaticCredentialProvider) -> None:
    workspace.state = "FAILED"
    with pytest.raises(RuntimeError, match=r"'SELECT 1' failed: no such table"):
        DatabricksDatasource("w1", "SELECT 1", None, None, credentials)


class Renewing(DatabricksCredentialProvider):
    """A provider whose first token has expired."""

    def __init__(self, host: str) -> None:
        self.token, self.host = "expired", host

    def get_token(self) -> str:
        return self.token

    def get_host(self) -> str:
        return self.host

    def invalidate(self) -> None:
        self.token = "secret"


def test_a_refused_token_is_renewed(workspace: Workspace) -> None:
    source = DatabricksDatasource("w1", "SELECT 1", None, None, Renewing(workspace.address))
    assert len(read_rows(source)) == 4


def test_a_table_or_a_query_is_given() -> None:
    for options in ({}, {"table": "t", "query": "SELECT 1"}):
        with pytest.raises(ValueError, match=r"pass either table or query"):
            skate.data.read_databricks_tables(warehouse_id="w1", **options)  # type: ignore[arg-type]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "databricks.sdk", None)
    monkeypatch.setitem(sys.modules, "databricks.sdk.service.sql", None)
    with pytest.raises(ImportError, match=r"read_databricks_tables needs databricks-sdk: pip install"):
        skate.data.read_databricks_tables(warehouse_id="w1", table="t")


# ------------------------------------------------------------ Unity Catalog


def catalog_of(workspace: Workspace, region: str | None = "us-west-2") -> DatabricksUnityCatalog:
    return DatabricksUnityCatalog(url=workspace.address, token="secret", region=region)


def test_a_table_on_s3_is_resolved_with_credentials(workspace: Workspace) -> None:
    catalog = catalog_of(workspace)
    found = catalog.resolve("main.sales.t", reader=ReaderFormat.DELTA)
    assert (found.path, found.data_format) == ("s3://bucket/t", "delta")
    assert isinstance(found.filesystem, pafs.S3FileSystem)
    assert found.storage_options is not None
    assert found.storage_options["AWS_SESSION_TOKEN"] == "session"
    catalog.resolve("main.sales.t", reader=ReaderFormat.PARQUET, mode=CatalogAccessMode.WRITE)
    assert workspace.operations == ["READ", "READ_WRITE"]
    assert "secret" not in repr(catalog)
    with pytest.raises(ValueError, match=r"s3://bucket/t: pass the region"):
        catalog_of(workspace, None).resolve("main.sales.t", reader=ReaderFormat.DELTA)


def test_a_table_on_azure_is_resolved_for_parquet(workspace: Workspace) -> None:
    workspace.granted = {
        "url": "abfss://box@account.dfs.core.windows.net/folder/t",
        "azure_user_delegation_sas": {"sas_token": "?sv=2024"},
    }
    found = catalog_of(workspace).resolve("main.sales.t", reader=ReaderFormat.PARQUET)
    assert found.path == "box/folder/t"
    assert isinstance(found.filesystem, pafs.AzureFileSystem)
    with pytest.raises(ValueError, match=r"on S3 only: use read_databricks_tables"):
        catalog_of(workspace).resolve("main.sales.t", reader=ReaderFormat.DELTA)


def test_an_iceberg_table_is_resolved_to_the_rest_interface(workspace: Workspace) -> None:
    found = catalog_of(workspace).resolve("main.sales.t", reader=ReaderFormat.ICEBERG)
    assert found.table_identifier == "sales.t"
    assert found.catalog_kwargs is not None
    assert found.catalog_kwargs["uri"] == f"{workspace.address}/api/2.1/unity-catalog/iceberg-rest"
    assert found.catalog_kwargs["warehouse"] == "main"


@pytest.mark.parametrize(
    ("described", "found"),
    [
        ({"data_source_format": "PARQUET"}, "parquet"),
        ({"data_source_format": "CSV"}, None),
        ({"properties": {"delta.universalFormat.enabledFormats": "iceberg"}}, "iceberg"),
    ],
)
def test_the_format_of_a_table_is_inferred(workspace: Workspace, described: Any, found: str | None) -> None:
    workspace.table = {**workspace.table, **described}
    assert catalog_of(workspace).infer_format("main.sales.t") == found


def test_a_table_of_unknown_format_is_not_read(workspace: Workspace) -> None:
    workspace.table = {"table_id": "7", "data_source_format": "CSV"}
    with (
        pytest.warns(DeprecationWarning, match="catalog="),
        pytest.raises(ValueError, match=r"pass data_format"),
    ):
        skate.data.read_unity_catalog("main.sales.t", workspace.address, "secret")


def test_a_catalog_needs_credentials() -> None:
    with pytest.raises(ValueError, match=r"needs url and token"):
        DatabricksUnityCatalog(url="https://host")
