"""Datasource for tables of a Delta Sharing server."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from skate.air import _filesystems as filesystems
from skate.air import _optional
from skate.data._block import schemas
from skate.data._io import balancing, retrying
from skate.data._io.parquet_footers import strip_metadata
from skate.data.block import BlockMetadata
from skate.data.datasource.datasource import Datasource, ReadTask

# One file: its URL, and the partition values of the table in it, as text.
SharedFile = tuple[str, dict[str, str | None]]
_PLAIN_TYPES = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


class DeltaSharingDatasource(Datasource):
    """Read the Parquet files that the server lists for a table.

    The URLs of the files expire after a time that the server sets, often an hour: read the dataset within it.

    Args:
        url: The profile file and the table: `<profile>#<share>.<schema>.<table>`.
        json_predicate_hints: Predicate as JSON; the server may skip files that cannot match it.
        limit: Hint for the server, which may stop listing files once they hold this many rows.
        version: Version of the table to read.
        timestamp: Read the version at this time.
    """

    def __init__(
        self,
        url: str,
        json_predicate_hints: str | None = None,
        limit: int | None = None,
        version: int | None = None,
        timestamp: str | None = None,
    ) -> None:
        protocol = _optional.load("delta_sharing.protocol", "read_delta_sharing_tables", "delta-sharing")
        client = _optional.load("delta_sharing.rest_client", "read_delta_sharing_tables", "delta-sharing")
        if limit is not None and (not isinstance(limit, int) or limit < 0):
            raise ValueError(f"limit is {limit!r}: pass a non-negative int, or None")
        profile, share, schema, table = parse_url(url)
        server = client.DataSharingRestClient(protocol.DeltaSharingProfile.read_from_file(profile))
        try:
            listed = server.list_files_in_table(
                protocol.Table(name=table, share=share, schema=schema),
                jsonPredicateHints=json_predicate_hints,
                limitHint=limit,
                version=version,
                timestamp=timestamp,
            )
        finally:
            server.close()
        self._url = url
        self._files = listed.add_files
        self._schema = schema_of(json.loads(listed.metadata.schema_string))

    def schema(self) -> pa.Schema | None:
        """Return the schema of the table, including its partition columns."""
        return self._schema

    def estimate_inmemory_data_size(self) -> int | None:
        """Return about how many bytes the files take as blocks."""
        return 2 * sum(file.size or 0 for file in self._files)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Split the files into groups of about the same size."""
        if not self._files:
            empty = BlockMetadata(num_rows=0, size_bytes=0, input_files=None, exec_stats=None)
            return [ReadTask(functools.partial(_empty_block, self._schema), empty, self._schema)]
        tasks = []
        for group in balancing.balance(self._files, [file.size or 0 for file in self._files], parallelism):
            metadata = BlockMetadata(
                num_rows=None,
                size_bytes=2 * sum(file.size or 0 for file in group),
                input_files=[
                    file.url.partition("?")[0] for file in group
                ],  # the query string holds signatures
                exec_stats=None,
            )
            files = [(file.url, dict(file.partition_values)) for file in group]
            read = functools.partial(_read, files, self._schema)
            tasks.append(ReadTask(read, metadata, self._schema, per_task_row_limit))
        return tasks


def parse_url(url: str) -> tuple[str, str, str, str]:
    """Split a URL into the profile file, the share, the schema and the table.

    >>> parse_url("config.share#north.sales.orders")
    ('config.share', 'north', 'sales', 'orders')
    """
    profile, _, name = url.rpartition("#")
    parts = name.split(".")
    if not profile or len(parts) != 3 or not all(parts):
        raise ValueError(f"{url!r} names no shared table: pass '<profile file>#<share>.<schema>.<table>'")
    return profile, parts[0], parts[1], parts[2]


def schema_of(described: dict[str, Any]) -> pa.Schema:
    """Convert a Delta schema to an Arrow schema."""
    return pa.schema(
        [pa.field(field["name"], _type_of(field["type"]), field["nullable"]) for field in described["fields"]]
    )


def _type_of(described: Any) -> pa.DataType:
    if isinstance(described, str):
        if described.startswith("decimal"):
            precision, scale = described.removeprefix("decimal(").removesuffix(")").split(",")
            return pa.decimal128(int(precision), int(scale))
        return _PLAIN_TYPES[described]
    match described["type"]:
        case "array":
            return pa.list_(_type_of(described["elementType"]))
        case "map":
            return pa.map_(_type_of(described["keyType"]), _type_of(described["valueType"]))
        case _:
            return pa.struct(list(schema_of(described)))


def _empty_block(schema: pa.Schema) -> list[pa.Table]:
    return [schema.empty_table()]


def _read(files: list[SharedFile], schema: pa.Schema) -> Iterator[pa.Table]:
    for url, values in files:
        yield from retrying.iterate(
            functools.partial(_blocks, url, values, schema), f"reading {url.partition('?')[0]}"
        )


def _blocks(url: str, values: dict[str, str | None], schema: pa.Schema) -> Iterator[pa.Table]:
    filesystem, path = filesystems.resolve(url)
    with filesystem.open_input_file(path) as file:
        for batch in pq.ParquetFile(file).iter_batches():
            block = pa.Table.from_batches([batch])
            block = pa.Table.from_arrays(block.columns, schema=strip_metadata(block.schema))
            for name, value in values.items():
                type_ = schema.field(name).type
                given = pa.scalar(value or None, pa.string()).cast(type_)
                block = block.append_column(pa.field(name, type_), pa.repeat(given, block.num_rows))
            yield schemas.conform(block, schema)
