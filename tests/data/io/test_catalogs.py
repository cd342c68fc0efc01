"""Readers and writers that find a table through a catalog."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

import skate
from skate.data import Catalog, CatalogAccessMode, ReaderFormat, ResolvedSource

pytestmark = pytest.mark.usefixtures("client_libraries")
ROWS = [{"n": number} for number in range(3)]


@dataclass
class Folders(Catalog):
    """Tables are folders below a root, which the filesystem knows and the path does not."""

    root: Path
    asked: list[tuple[str, str]] = field(default_factory=list)

    def resolve(
        self, table: str, *, reader: ReaderFormat, mode: CatalogAccessMode = CatalogAccessMode.READ
    ) -> ResolvedSource:
        self.asked.append((reader, mode))
        name = table.replace(".", "/")
        if reader is ReaderFormat.PARQUET:
            return ResolvedSource(name, pafs.SubTreeFileSystem(str(self.root), pafs.LocalFileSystem()))
        if reader is ReaderFormat.DELTA:
            return ResolvedSource(path=str(self.root / name), storage_options={})
        settings = {"type": "sql", "uri": f"sqlite:///{self.root}/db", "warehouse": f"file://{self.root}"}
        return ResolvedSource(catalog_kwargs=settings, table_identifier=table.partition(".")[2])


@pytest.fixture
def catalog(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


def test_parquet_files_are_written_and_read_by_the_name_of_a_table(catalog: Folders) -> None:
    skate.data.from_items(ROWS).write_parquet("main.t", catalog=catalog)
    assert skate.data.read_parquet("main.t", catalog=catalog).take_all() == ROWS
    assert catalog.asked == [("parquet", "write"), ("parquet", "read")]
    assert (catalog.root / "main" / "t").is_dir()


def test_a_delta_table_is_written_and_read_by_its_name(catalog: Folders) -> None:
    pytest.importorskip("deltalake")
    skate.data.from_items(ROWS).write_delta("main.t", catalog=catalog)
    assert skate.data.read_delta("main.t", catalog=catalog).take_all() == ROWS
    assert catalog.asked == [("delta", "write"), ("delta", "read")]


def test_an_iceberg_table_is_written_and_read_by_its_name(catalog: Folders) -> None:
    library = pytest.importorskip("pyiceberg.catalog")
    settings = catalog.resolve("main.sales.t", reader=ReaderFormat.ICEBERG).catalog_kwargs
    assert settings is not None
    made = library.load_catalog("default", **settings)
    made.create_namespace("sales")
    given = skate.data.from_items(ROWS)
    made.create_table("sales.t", given.schema().base_schema)
    given.write_iceberg("main.sales.t", catalog=catalog)
    assert skate.data.read_iceberg(table_identifier="main.sales.t", catalog=catalog).take_all() == ROWS
    with pytest.raises(ValueError, match=r"not both"):
        skate.data.read_iceberg(table_identifier="main.sales.t", catalog=catalog, catalog_kwargs={})
    made.engine.dispose()


@pytest.mark.parametrize(("paths", "catalog"), [(["a", "b"], None), ("a", "main")])
def test_a_catalog_and_one_name_are_needed(tmp_path: Path, paths: Any, catalog: Any) -> None:
    with pytest.raises(TypeError, match=r"name of one table|`catalog` must be a Catalog or None"):
        skate.data.read_parquet(paths, catalog=catalog or Folders(tmp_path))
