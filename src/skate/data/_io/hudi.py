"""Datasource for Hudi tables, divided by file slices."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from skate.air import _optional
from skate.data._io import balancing
from skate.data.block import BlockMetadata
from skate.data.datasource.datasource import Datasource, ReadTask

_QUERY_TYPES = ("snapshot", "incremental")
# Ray's names for the bounds of an incremental query.
_START = "hoodie.read.file_group.start_timestamp"
_END = "hoodie.read.file_group.end_timestamp"
# One file slice: the path of its base file, and the paths of the logs to merge into it.
Slice = tuple[str, list[str]]


class HudiDatasource(Datasource):
    """Read a snapshot of a Hudi table, or the changes between two timestamps.

    Args:
        table_uri: Location of the table.
        query_type: `"snapshot"` or `"incremental"`.
        filters: Conditions on columns, as (name, operator, value).
        hudi_options: Options of Hudi, such as `hoodie.read.file_group.start_timestamp`.
        storage_options: Storage options of `hudi`.
    """

    def __init__(
        self,
        table_uri: str,
        query_type: str = "snapshot",
        filters: list[tuple[str, str, str]] | None = None,
        hudi_options: dict[str, str] | None = None,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        hudi = _hudi()
        if query_type.lower() not in _QUERY_TYPES:
            raise ValueError(f"query_type is {query_type!r}: use one of {list(_QUERY_TYPES)}")
        self._uri = str(table_uri)
        self._incremental = query_type.lower() == "incremental"
        self._filters = list(filters or ())
        self._options = dict(hudi_options or {})
        builder = hudi.HudiTableBuilder.from_base_uri(self._uri).with_hudi_options(self._options)
        table = builder.with_storage_options(dict(storage_options or {})).build()
        self._slices = table.get_file_slices(self._read_options())
        self._schema = table.get_schema_with_meta_fields()
        self._table_options = {**table.storage_options(), **table.hudi_options()}

    def _read_options(self) -> Any:
        hudi = _hudi()
        kind = hudi.HudiQueryType.Incremental if self._incremental else hudi.HudiQueryType.Snapshot
        made = hudi.HudiReadOptions(filters=self._filters, hudi_options=self._options).with_query_type(kind)
        start, end = self._options.get(_START), self._options.get(_END)
        made = made if start is None else made.with_start_timestamp(start)
        return made if end is None else made.with_end_timestamp(end)

    def schema(self) -> pa.Schema | None:
        """Return the schema of the table, including Hudi's meta columns."""
        return self._schema

    def estimate_inmemory_data_size(self) -> int | None:
        """Return about how many bytes the files take as blocks."""
        return 2 * int(sum(slice_.total_size_bytes() for slice_ in self._slices))

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Split the slices into groups of about the same size."""
        if not self._slices:
            return []
        tasks = []
        sizes = [slice_.total_size_bytes() for slice_ in self._slices]
        reader = self._replace(_slices=None)  # the library's objects cannot be pickled
        for group in balancing.balance(self._slices, sizes, parallelism):
            files = [(each.base_file_relative_path(), each.log_files_relative_paths()) for each in group]
            root = self._uri.rstrip("/")
            metadata = BlockMetadata(
                num_rows=None,  # filters and logs may remove rows
                size_bytes=2 * sum(slice_.total_size_bytes() for slice_ in group),
                input_files=[f"{root}/{path}" for base, logs in files for path in (base, *logs)],
                exec_stats=None,
            )
            read = functools.partial(reader._read, files)
            tasks.append(ReadTask(read, metadata, self._schema, per_task_row_limit))
        return tasks

    def _read(self, slices: list[Slice]) -> Iterator[pa.Table]:
        reader = _hudi().HudiFileGroupReader(self._uri, self._table_options)
        for base, logs in slices:
            for batch in reader.read_file_slice_from_paths_stream(base, logs, self._read_options()):
                yield pa.Table.from_batches([batch])


def _hudi() -> Any:
    hudi = _optional.load("hudi", "read_hudi")
    if not hasattr(hudi, "HudiReadOptions"):
        raise ImportError("read_hudi needs hudi 0.5 or newer: pip install -U hudi", name="hudi")
    return hudi
