"""Datasource and datasink for Lance datasets."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from skate.air import _optional
from skate.data._block import schemas, tables
from skate.data._io import balancing, pickled_columns
from skate.data.block import BlockMetadata
from skate.data.datasource.datasink import Datasink, TaskContext, WriteResult
from skate.data.datasource.datasource import Datasource, ReadTask
from skate.data.datasource.savemode import SaveMode

_MODES = (SaveMode.CREATE, SaveMode.APPEND, SaveMode.OVERWRITE)


class LanceDatasource(Datasource):
    """Read a Lance dataset, divided by its fragments.

    Args:
        uri: Location of the dataset.
        version: The version to read; by default the latest at the time of the call.
        columns: Columns to read; all by default.
        filter: Condition in SQL that rows must meet.
        storage_options: Storage options of `lance`.
        scanner_options: Further options for `lance.LanceDataset.scanner`.
    """

    def __init__(
        self,
        uri: str,
        version: int | str | None = None,
        columns: list[str] | None = None,
        filter: str | None = None,
        storage_options: dict[str, str] | None = None,
        scanner_options: dict[str, Any] | None = None,
    ) -> None:
        self._uri = uri
        self._storage_options = storage_options
        self._scan = dict(scanner_options or {})
        if columns is not None:
            self._scan["columns"] = columns
        if filter is not None:
            self._scan["filter"] = filter
        dataset = _open(uri, version, storage_options, "read_lance")
        self._version = dataset.version  # later versions are not read
        chosen = self._scan.pop("fragments", None)
        self._fragments: list[tuple[int, int]] = [
            (int(fragment.fragment_id), int(fragment.count_rows()))
            for fragment in (dataset.get_fragments() if chosen is None else chosen)
        ]
        self._projected = pickled_columns.written_schema(dataset.scanner(**self._scan).projected_schema)

    def schema(self) -> pa.Schema | None:
        """Return the schema of the selected columns."""
        return self._projected

    def num_rows(self) -> int | None:
        """Return the number of rows, unless a filter is set."""
        if any(
            option in self._scan for option in ("filter", "limit", "offset", "nearest", "full_text_query")
        ):
            return None
        return sum(rows for _, rows in self._fragments)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Split the fragments into groups with about the same number of rows."""
        exact = self.num_rows() is not None
        tasks = []
        if not self._fragments:
            return []
        for group in balancing.balance(self._fragments, [rows for _, rows in self._fragments], parallelism):
            ids = [number for number, _ in group]
            metadata = BlockMetadata(
                num_rows=sum(rows for _, rows in group) if exact else None,
                size_bytes=None,
                input_files=[self._uri],
                exec_stats=None,
            )
            read = functools.partial(
                _read, self._uri, self._version, self._storage_options, ids, self._scan, per_task_row_limit
            )
            identity = f"{self._uri}@{self._version}#{','.join(map(str, ids))}"
            tasks.append(ReadTask(read, metadata, self._projected, per_task_row_limit, identity=identity))
        return tasks

    def apply_projection(self, columns: list[str]) -> LanceDatasource | None:
        """Return a datasource that reads only these columns."""
        if not columns or not set(columns) <= set(self._projected.names):
            return None
        schema = pa.schema([self._projected.field(name) for name in columns])
        return self._replace(_scan={**self._scan, "columns": list(columns)}, _projected=schema)  # type: ignore[no-any-return]


class LanceDatasink(Datasink[list[bytes]]):
    """Write a Lance dataset; one commit makes all files visible once every task has finished.

    Args:
        uri: Location of the dataset.
        schema: Schema of the rows, which are cast to it.
        mode: `"create"`, `"append"` or `"overwrite"`.
        min_rows_per_file: Combine blocks until a file has this many rows.
        max_rows_per_file: Split blocks into files of at most this many rows.
        data_storage_version: Version of the file format.
        storage_options: Storage options of `lance`.
    """

    def __init__(
        self,
        uri: str,
        schema: pa.Schema | None = None,
        mode: SaveMode = SaveMode.CREATE,
        min_rows_per_file: int = 1024 * 1024,
        max_rows_per_file: int = 64 * 1024 * 1024,
        data_storage_version: str | None = None,
        storage_options: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        _optional.load("lance", "write_lance", "pylance")
        unknown = sorted(name for name, value in options.items() if value is not None)
        if unknown:
            raise TypeError(f"write_lance does not accept {unknown}: pass the uri of the dataset")
        if SaveMode(mode) not in _MODES:
            raise ValueError(f"mode is {mode!r}: use one of {', '.join(map(str, _MODES))}")
        self._uri = uri
        self._schema = schema
        self._mode = SaveMode(mode)
        self._min_rows_per_file = min_rows_per_file
        self._max_rows_per_file = max_rows_per_file
        self._data_storage_version = data_storage_version
        self._storage_options = storage_options
        self._read_version: int | None = None

    @property
    def min_rows_per_write(self) -> int | None:
        """The minimum number of rows per call of `write`."""
        return self._min_rows_per_file

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Check that the target exists or not, as the mode requires."""
        try:
            existing = _open(self._uri, None, self._storage_options, "write_lance")
        except (ValueError, FileNotFoundError):  # Lance raises either
            existing = None
        if existing is not None:
            if self._mode == SaveMode.CREATE:
                raise ValueError(
                    f"{self._uri} already exists. Write to another path, or pass mode='append' or 'overwrite'"
                )
            self._read_version = existing.version
            if self._mode == SaveMode.APPEND:
                self._schema = pickled_columns.written_schema(existing.schema)

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> list[bytes]:
        """Write the files of one task and return their descriptions."""
        from lance.fragment import write_fragments

        block = tables.concat(list(blocks) or [pa.table({})])
        if block.num_rows == 0:
            return []
        if self._schema is not None:
            block = schemas.conform(block, self._schema)
        fragments = write_fragments(
            block,
            self._uri,
            schema=block.schema,
            mode="append" if self._mode == SaveMode.APPEND else "overwrite",  # only the commit takes effect
            max_rows_per_file=self._max_rows_per_file,
            data_storage_version=self._data_storage_version,
            storage_options=self._storage_options,
        )
        return [pickle.dumps((fragment, block.schema)) for fragment in fragments]

    def on_write_complete(self, write_result: WriteResult[list[bytes]]) -> None:
        """Commit the files of all tasks as one version."""
        lance = _optional.load("lance", "write_lance", "pylance")
        found = [pickle.loads(data) for returned in write_result.write_returns for data in returned or ()]
        if not found:
            return
        fragments = [fragment for fragment, _ in found]
        if self._mode == SaveMode.APPEND and self._read_version is not None:
            operation: Any = lance.LanceOperation.Append(fragments)
        else:
            schema = self._schema or schemas.unify(schema for _, schema in found)
            operation = lance.LanceOperation.Overwrite(schema, fragments)
        lance.LanceDataset.commit(
            self._uri, operation, read_version=self._read_version, storage_options=self._storage_options
        )


def _open(uri: str, version: int | str | None, storage_options: dict[str, str] | None, for_what: str) -> Any:
    lance = _optional.load("lance", for_what, "pylance")
    return lance.dataset(uri, version=version, storage_options=storage_options)


def _read(
    uri: str,
    version: int,
    storage_options: dict[str, str] | None,
    fragment_ids: list[int],
    scan: dict[str, Any],
    limit: int | None,
) -> Iterator[pa.Table]:
    dataset = _open(uri, version, storage_options, "read_lance")
    fragments = [dataset.get_fragment(number) for number in fragment_ids]
    options = {"scan_in_order": True, **scan}
    if limit is not None:
        options.setdefault("limit", limit)
    for batch in dataset.scanner(fragments=fragments, **options).to_batches():
        yield pa.Table.from_batches([batch])
