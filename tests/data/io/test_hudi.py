from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skate
from skate.data._io.hudi import HudiDatasource
from tests.data.io.support import read_rows

pytestmark = pytest.mark.usefixtures("client_libraries")
FIRST, SECOND = "20240101000000000", "20240102000000000"
PROPERTIES = {
    "hoodie.table.name": "t",
    "hoodie.table.type": "COPY_ON_WRITE",
    "hoodie.table.version": "6",
    "hoodie.timeline.layout.version": "1",
    "hoodie.table.partition.fields": "city",
    "hoodie.table.recordkey.fields": "n",
    "hoodie.table.base.file.format": "PARQUET",
    "hoodie.table.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.datasource.write.drop.partition.columns": "false",
    "hoodie.populate.meta.fields": "true",
    "hoodie.table.timeline.timezone": "UTC",
}
META = ["commit_time", "commit_seqno", "record_key", "partition_path", "file_name"]


def commit(table: Path, instant: str, rows: dict[str, list[int]]) -> None:
    """Write a file for each city, and the commit that makes them a version of the table."""
    written: dict[str, Any] = {}
    for city, numbers in rows.items():
        folder, group = f"city={city}", f"{city}-0"
        name = f"{group}_0-1-1_{instant}.parquet"
        (table / folder).mkdir(exist_ok=True)
        values = [instant, f"{instant}_0_0", "key", folder, name]
        meta = {f"_hoodie_{key}": [value] * len(numbers) for key, value in zip(META, values, strict=True)}
        pq.write_table(pa.table({**meta, "n": numbers, "city": [city] * len(numbers)}), table / folder / name)
        size = (table / folder / name).stat().st_size
        written[folder] = [
            {"fileId": group, "path": f"{folder}/{name}", "numWrites": len(numbers), "fileSizeInBytes": size}
        ]
        (table / folder / ".hoodie_partition_metadata").write_text(
            f"commitTime={instant}\npartitionDepth=1\n"
        )
    types = {**{f"_hoodie_{key}": "string" for key in META}, "n": "long", "city": "string"}
    fields = [{"name": name, "type": ["null", type_], "default": None} for name, type_ in types.items()]
    schema = json.dumps({"type": "record", "name": "t", "fields": fields})
    body = {"partitionToWriteStats": written, "compacted": False, "extraMetadata": {"schema": schema}}
    (table / ".hoodie" / f"{instant}.commit").write_text(json.dumps({**body, "operationType": "UPSERT"}))


@pytest.fixture
def table(tmp_path: Path) -> str:
    pytest.importorskip("hudi")
    (tmp_path / ".hoodie").mkdir()
    (tmp_path / ".hoodie" / "hoodie.properties").write_text(
        "".join(f"{key}={value}\n" for key, value in PROPERTIES.items())
    )
    commit(tmp_path, FIRST, {"bern": [1, 2], "basel": [3]})
    commit(tmp_path, SECOND, {"bern": [1, 2, 4]})
    return str(tmp_path)


def numbers(source: HudiDatasource) -> list[int]:
    return sorted(row["n"] for row in read_rows(source))


def test_the_newest_files_of_a_table_are_read_by_tasks(table: str) -> None:
    source = HudiDatasource(table)
    assert [len(task.metadata.input_files or ()) for task in source.get_read_tasks(2)] == [1, 1]
    assert numbers(source) == [1, 2, 3, 4]
    found = skate.data.read_hudi(table)
    assert found.columns() == [*(f"_hoodie_{key}" for key in META), "n", "city"]
    assert sorted(row["city"] for row in found.take_all()) == ["basel", "bern", "bern", "bern"]


def test_filters_choose_files_and_rows(table: str) -> None:
    source = HudiDatasource(table, filters=[("city", "=", "basel")])
    assert len(source.get_read_tasks(9)) == 1
    assert numbers(source) == [3]


def test_changes_after_a_time_are_read(table: str) -> None:
    options = {"hoodie.read.file_group.start_timestamp": FIRST}
    assert numbers(HudiDatasource(table, "incremental", hudi_options=options)) == [1, 2, 4]
    options["hoodie.read.file_group.start_timestamp"] = SECOND
    assert HudiDatasource(table, "incremental", hudi_options=options).get_read_tasks(2) == []


def test_the_kind_of_query_is_checked(table: str) -> None:
    with pytest.raises(ValueError, match=r"query_type is 'spam'.*snapshot"):
        HudiDatasource(table, "spam")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hudi", None)
    with pytest.raises(ImportError, match=r"read_hudi needs hudi: pip install hudi"):
        skate.data.read_hudi("t")
