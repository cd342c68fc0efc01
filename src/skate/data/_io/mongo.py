"""Datasource and datasink for MongoDB collections."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from skate.air import _optional
from skate.data._block import rows, schemas
from skate.data.block import BlockMetadata
from skate.data.datasource.datasink import Datasink, TaskContext
from skate.data.datasource.datasource import Datasource, ReadTask

_ROWS_AT_A_TIME = 10_000


class MongoDatasource(Datasource):
    """Read the documents of a collection, or the result of a pipeline.

    Without a pipeline, the collection is divided by `_id`; a pipeline may need all documents, so one task runs it.

    Args:
        uri: URI of the server.
        database: Name of the database.
        collection: Name of the collection.
        pipeline: Stages for `aggregate`.
        schema: Schema of the rows, which are cast to it.
        mongo_args: Further options for `aggregate`.
    """

    def __init__(
        self,
        uri: str,
        database: str,
        collection: str,
        *,
        pipeline: list[dict[str, Any]] | None = None,
        schema: pa.Schema | None = None,
        **mongo_args: Any,
    ) -> None:
        _optional.load("pymongo", "read_mongo")
        self._uri, self._database, self._collection = uri, database, collection
        self._pipeline = pipeline
        self._schema = schema
        self._args = mongo_args
        with self._open_collection("read_mongo") as found:
            self._count = found.estimated_document_count()

    def schema(self) -> pa.Schema | None:
        """Return the schema that was passed, if any."""
        return self._schema

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Divide the collection into ranges of `_id` with about the same number of documents."""
        pipelines = [self._pipeline] if self._pipeline is not None else self._ranges(parallelism)
        unknown = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
        return [
            ReadTask(functools.partial(self._read, stages), unknown, self._schema, per_task_row_limit)
            for stages in pipelines
        ]

    def _ranges(self, parts: int) -> list[list[dict[str, Any]]]:
        if parts <= 1 or self._count < 2:
            return [[]]
        with self._open_collection("read_mongo") as found:
            stage = {"$bucketAuto": {"groupBy": "$_id", "buckets": parts}}
            starts = [bucket["_id"]["min"] for bucket in found.aggregate([stage], allowDiskUse=True)]
        ranges: list[list[dict[str, Any]]] = []
        for start, stop in zip([None, *starts[1:]], [*starts[1:], None], strict=True):
            # Unbounded at both ends, to include new documents and `_id` values of other types.
            conditions = [{"$gte": ["$_id", start]}] * (start is not None) + [{"$lt": ["$_id", stop]}] * (
                stop is not None
            )
            ranges.append([{"$match": {"$expr": {"$and": conditions}}}])
        return ranges

    def _read(self, pipeline: list[dict[str, Any]]) -> Iterator[pa.Table]:
        with self._open_collection("read_mongo") as found:
            documents = iter(found.aggregate(pipeline, **self._args))
            while part := list(itertools.islice(documents, _ROWS_AT_A_TIME)):
                block = rows.to_block_with_objects(part)
                if self._schema is not None:
                    chosen = [name for name in block.column_names if name in self._schema.names]
                    block = schemas.conform(block.select(chosen), self._schema)
                yield block

    @contextlib.contextmanager
    def _open_collection(self, for_what: str) -> Iterator[Any]:
        with open_collection(self._uri, self._database, self._collection, for_what) as found:
            yield found


class MongoDatasink(Datasink[None]):
    """Insert rows into a collection.

    A row with an `_id` replaces the document with this `_id`, so a retry does not duplicate it; rows without an
    `_id` are inserted, and a retry may duplicate them.

    Args:
        uri: URI of the server.
        database: Name of the database, which must exist.
        collection: Name of the collection, which must exist.
    """

    def __init__(self, uri: str, database: str, collection: str) -> None:
        _optional.load("pymongo", "write_mongo")
        self._uri, self._database, self._collection = uri, database, collection

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Check that the database and the collection exist."""
        with open_collection(self._uri, self._database, self._collection, "write_mongo"):
            pass

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> None:
        """Write the blocks of one task."""
        pymongo = _optional.load("pymongo", "write_mongo")
        with open_collection(self._uri, self._database, self._collection, "write_mongo") as found:
            for block in blocks:
                documents = rows.to_rows(block)
                while part := list(itertools.islice(documents, _ROWS_AT_A_TIME)):
                    if "_id" in block.column_names:
                        found.bulk_write(
                            [pymongo.ReplaceOne({"_id": row["_id"]}, row, upsert=True) for row in part]
                        )
                    else:
                        found.insert_many(part)


@contextlib.contextmanager
def open_collection(uri: str, database: str, collection: str, for_what: str) -> Iterator[Any]:
    """Yield a collection and close the connection afterwards.

    Raises:
        ValueError: The database or the collection does not exist.
    """
    pymongo = _optional.load("pymongo", for_what)
    client = pymongo.MongoClient(uri)
    try:
        if database not in client.list_database_names():
            raise ValueError(
                f"The destination database {database} doesn't exist: create it, or check the name"
            )
        if collection not in client[database].list_collection_names():
            raise ValueError(
                f"The destination collection {collection} doesn't exist in {database}: create it first"
            )
        yield client[database][collection]
    finally:
        client.close()
