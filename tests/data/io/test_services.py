"""Services that no test can reach: MongoDB with a stand-in for its client, and errors for missing packages."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pyarrow as pa
import pytest

from skate.data._io.bigquery import BigQueryDatasink, BigQueryDatasource
from skate.data._io.mongo import MongoDatasink, MongoDatasource
from tests.data.io.support import read_rows, write


class Collection:
    """Enough of a collection of pymongo: documents, ranges of `_id`, and a pipeline that counts."""

    def __init__(self) -> None:
        self.documents: list[dict[str, Any]] = []

    def estimated_document_count(self) -> int:
        return len(self.documents)

    def aggregate(self, pipeline: list[dict[str, Any]], **options: Any) -> list[dict[str, Any]]:
        found = sorted(copy.deepcopy(self.documents), key=lambda document: document["_id"])
        for stage in pipeline:
            ((name, body),) = stage.items()
            if name == "$match":
                for condition in body["$expr"]["$and"]:
                    ((operator, (_, border)),) = condition.items()
                    found = [row for row in found if (row["_id"] >= border) == (operator == "$gte")]
            elif name == "$bucketAuto":
                size = -(-len(found) // body["buckets"])
                found = [{"_id": {"min": found[start]["_id"]}} for start in range(0, len(found), size)]
            elif name == "$count":
                found = [{body: len(found)}]
        return found

    def insert_many(self, documents: list[dict[str, Any]]) -> None:
        self.documents += documents

    def bulk_write(self, operations: list[Any]) -> None:
        for operation in operations:
            kept = [document for document in self.documents if document["_id"] != operation._filter["_id"]]
            self.documents = [*kept, operation._doc]


COLLECTION = Collection()


class Client(dict[str, Any]):
    closed = 0

    def __init__(self, uri: str) -> None:
        super().__init__(db=Database(c=COLLECTION))

    def list_database_names(self) -> list[str]:
        return list(self)

    def close(self) -> None:
        Client.closed += 1


class Database(dict[str, Collection]):
    def list_collection_names(self) -> list[str]:
        return list(self)


@pytest.fixture
def mongo(monkeypatch: pytest.MonkeyPatch) -> Collection:
    monkeypatch.setattr("pymongo.MongoClient", Client)
    COLLECTION.documents = [{"_id": number, "s": f"text {number}"} for number in range(10)]
    return COLLECTION


def test_a_collection_is_cut_by_id(mongo: Collection) -> None:
    source = MongoDatasource("mongodb://x", "db", "c")
    assert len(source.get_read_tasks(3)) == 3
    assert read_rows(source, parallelism=3) == mongo.documents
    assert read_rows(MongoDatasource("mongodb://x", "db", "c", schema=pa.schema({"s": pa.string()})))[0] == {
        "s": "text 0"
    }


def test_a_pipeline_is_run_by_one_task(mongo: Collection) -> None:
    assert read_rows(MongoDatasource("mongodb://x", "db", "c", pipeline=[{"$count": "rows"}])) == [
        {"rows": 10}
    ]


def test_rows_with_an_id_are_not_there_twice(mongo: Collection) -> None:
    rows = pa.table({"_id": [9, 10], "s": ["new", "new"]})
    for _ in range(2):
        write(MongoDatasink("mongodb://x", "db", "c"), rows)
    assert mongo.documents[-2:] == rows.to_pylist()
    assert len(mongo.documents) == 11


@pytest.mark.parametrize(("database", "collection"), [("nosuch", "c"), ("db", "nosuch")])
def test_a_missing_database_or_collection_is_named(mongo: Collection, database: str, collection: str) -> None:
    closed = Client.closed
    with pytest.raises(ValueError, match=r"nosuch doesn't exist"):
        MongoDatasource("mongodb://x", database, collection)
    with pytest.raises(ValueError, match=r"nosuch doesn't exist"):
        write(MongoDatasink("mongodb://x", database, collection), pa.table({"a": [1]}))
    assert Client.closed == closed + 2


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymongo", None)
    with pytest.raises(ImportError, match=r"read_mongo needs pymongo: pip install pymongo"):
        MongoDatasource("mongodb://x", "db", "c")
    monkeypatch.setitem(sys.modules, "google.cloud.bigquery", None)
    with pytest.raises(ImportError, match=r"read_bigquery needs google-cloud-bigquery"):
        BigQueryDatasource("project", "dataset.table")
    with pytest.raises(ImportError, match=r"write_bigquery needs google-cloud-bigquery"):
        BigQueryDatasink("project", "dataset.table")
