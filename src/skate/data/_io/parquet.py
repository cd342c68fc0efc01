"""Datasource for Parquet files, divided by row groups, with unneeded columns and row groups skipped."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skate.air import _filesystems as filesystems
from skate.data._block import schemas, tables
from skate.data._expressions.printing import inline
from skate.data._io import (
    balancing,
    errors,
    parquet_footers,
    parquet_rows,
    path_columns,
    paths,
    pickled_columns,
    retrying,
    validation,
)
from skate.data.block import BlockMetadata
from skate.data.context import DataContext
from skate.data.datasource.datasource import ReadTask
from skate.data.datasource.file_based_datasource import FileBasedDatasource, identity_of
from skate.data.datasource.partitioning import Partitioning, PartitionStyle

ROW_HASH = "row_hash"
_MAX_ROWS = 1 << 18  # of a piece whose rows turn out to be large
# Options of Skate rather than pyarrow, to suggest the closest one for a misspelled name.
_READ_PARQUET_OPTIONS = {
    "columns",
    "filter",
    "schema",
    "batch_size",
    "use_threads",
    "skip_paths",
    "include_paths",
}


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive row groups of one file."""

    file: paths.SourceFile
    groups: tuple[int, ...]
    first_row: int
    rows: int
    bytes: int


class ParquetDatasource(FileBasedDatasource):
    """Read Parquet files.

    Args:
        paths: Files, folders, globs or URIs.
        columns: Columns to read, in this order; partition columns count as columns.
        filesystem: A pyarrow or fsspec filesystem; derived from the URI by default.
        schema: Schema of the rows, which are cast to it; by default the union of the schemas of all files.
        filter: A `pyarrow.compute.Expression` that rows must meet.
        batch_size: Rows to read at a time; by default chosen by their size.
        use_threads: Decode columns in parallel. Tasks already run in parallel.
        tensor_column_schema: The NumPy dtype and shape of the tensors in columns of raw bytes.
        include_row_hash: Add the column `row_hash`, a number per row that is the same for every read.
        dataset_kwargs: Options for `pyarrow.parquet.ParquetFile`.
        file_args: As for `FileBasedDatasource`.
    """

    _FILE_EXTENSIONS: ClassVar[list[str] | None] = ["parquet"]
    _KIND: ClassVar[str] = "Parquet"

    def __init__(
        self,
        paths: paths.Paths,
        *,
        columns: Sequence[str] | None = None,
        filesystem: Any = None,
        schema: pa.Schema | None = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        use_threads: bool = False,
        partitioning: Partitioning | None = Partitioning(PartitionStyle.HIVE),  # noqa: B008 - never changed
        tensor_column_schema: dict[str, tuple[Any, tuple[int, ...]]] | None = None,
        include_row_hash: bool = False,
        dataset_kwargs: dict[str, Any] | None = None,
        _block_udf: Any = None,
        **file_args: Any,
    ) -> None:
        if isinstance(columns, str) or not all(isinstance(name, str) for name in columns or ()):
            raise ValueError(f"columns is {columns!r}: pass a list of column names")
        self._reader_args = _reader_args(dataset_kwargs or {})
        super().__init__(paths, filesystem=filesystem, schema=schema, partitioning=partitioning, **file_args)
        self._trusted |= pickled_columns.may_unpickle("RAY_DATA_AUTOLOAD_PYEXTENSIONTYPE")
        self._wanted = None if columns is None else list(columns)
        self._given_filter = filter
        self._predicate: Any = None
        self._batch_size = batch_size
        self._use_threads = use_threads
        self._tensor_columns = tensor_column_schema or {}
        self._include_row_hash = include_row_hash
        self._block_udf = _block_udf
        self._footers: list[parquet_footers.Footer] | None = None
        self._runs: list[_Run] = []
        self._full_schema: pa.Schema | None = None

    # ------------------------------------------------------------ metadata

    def schema(self) -> pa.Schema | None:
        """Return the schema from the footers; None if a function changes the blocks."""
        if self._block_udf is not None:
            return None
        schema = validation.select_fields(self._whole_schema(), self._output_columns())
        if not self._tensor_columns:
            return schema  # an empty table would import pandas
        return parquet_rows.decode_tensors(schema.empty_table(), self._tensor_columns).schema

    def num_rows(self) -> int | None:
        """Return the number of rows from the footers; None if a filter is set."""
        if self._filters() or self._block_udf is not None:
            return None
        return sum(sum(footer.rows) for footer in self._all_footers())

    def estimate_inmemory_data_size(self) -> int | None:
        """Estimate the size of the selected columns in memory, in bytes."""
        columns = self._needed_columns()
        return int(sum(sum(footer.rows) * footer.row_bytes(columns) for footer in self._all_footers()))

    def pushed(self) -> dict[str, str]:
        """Return the pushed-down columns and filters, for display in a plan."""
        found = {}
        if self._wanted is not None:
            found["columns"] = " ".join(self._wanted) or "none"
        filters = [] if self._given_filter is None else [str(self._given_filter)]
        if self._predicate is not None:
            filters.append(inline(self._predicate))
        if filters:
            found["filter"] = " and ".join(filters)
        return found

    def apply_projection(self, columns: list[str]) -> ParquetDatasource | None:
        """Return a datasource that reads only these columns."""
        if self._block_udf is not None:
            return None
        return self._replace(_wanted=list(columns), _exact=True)  # type: ignore[no-any-return]

    def apply_predicate(self, predicate: Any) -> tuple[ParquetDatasource, None] | None:
        """Return a datasource that skips row groups and rows; None if Arrow cannot evaluate the predicate."""
        if self._block_udf is not None or not set(predicate.columns()) <= set(self._whole_schema().names):
            return None
        try:
            predicate.to_pyarrow()
        except (TypeError, ValueError, NotImplementedError):  # for example a user-defined function
            return None
        both = predicate if self._predicate is None else self._predicate & predicate
        return self._replace(_predicate=both), None

    # ------------------------------------------------------------ tasks

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Split the files into consecutive groups of row groups of about the same size."""
        schema = self.schema()
        order = {file.path: number for number, file in enumerate(self._files)}
        footers = self._all_footers()
        needed = self._needed_columns()
        runs = [
            run
            for file in self._prune_files(self._order_files(data_context))
            for run in _runs_of(file, footers[order[file.path]], needed)
        ]
        if not runs:
            return []
        target = (data_context or DataContext.get_current()).target_max_block_size
        reader = self._replace(_files=[], _footers=None, _full_schema=self._whole_schema(), _target=target)
        if per_task_row_limit is not None:
            reader = reader._replace(
                _batch_size=min(per_task_row_limit, self._batch_size or per_task_row_limit)
            )
        tasks = []
        parts = 1 if self._at_once else parallelism
        for group in balancing.balance(runs, [run.bytes for run in runs], parts):
            merged = _merge_runs(group)
            files = [run.file for run in merged]
            metadata = BlockMetadata(
                num_rows=None if self._filters() or self._block_udf else sum(run.rows for run in group),
                size_bytes=sum(run.bytes for run in group),
                input_files=list(dict.fromkeys(file.path for file in files)),
                exec_stats=None,
            )
            inside = ";".join(f"{run.groups[0]}-{run.groups[-1]}" if run.groups else "" for run in merged)
            tasks.append(
                ReadTask(
                    functools.partial(reader._read_runs, merged),
                    metadata,
                    schema,
                    per_task_row_limit,
                    identity=identity_of(files, inside),
                )
            )
        return tasks

    def _prune_files(self, files: list[paths.SourceFile]) -> list[paths.SourceFile]:
        """Drop files whose partition values cannot match."""
        filters = self._filters()
        if self._parser is None or not filters or not files:
            return files
        # A column in the file takes precedence over the value in its path.
        held = {name for footer in self._all_footers() for name in footer.schema.names}
        values = {
            file.path: {key: value for key, value in self._parser(file.path).items() if key not in held}
            for file in files
        }
        if not any(values.values()):
            return files
        import pyarrow.dataset as pads  # imports pandas if installed, so import it only if needed

        format_ = pads.ParquetFileFormat()
        whole = self._whole_schema()
        fragments = [
            format_.make_fragment(
                file.path,
                self._filesystem,
                partition_expression=_partition_expression(values[file.path], whole),
            )
            for file in files
        ]
        dataset = pads.FileSystemDataset(fragments, whole, format_, self._filesystem)
        expression = functools.reduce(lambda left, right: left & right, filters)
        left = {fragment.path for fragment in dataset.get_fragments(filter=expression)}
        return [file for file in files if file.path in left]

    # ------------------------------------------------------------ whole reads, in process

    _at_once = False

    def at_once(self) -> ParquetDatasource:
        """Return a datasource with a single task on all cores, if Polars can decode the files unchanged."""
        asked = self._filters() or self._reader_args or self._block_udf or self._tensor_columns
        if asked or self._batch_size is not None or not filesystems.is_local(self._filesystem):
            return self
        from skate.data._kernels import decoding

        schema = self._needed_schema()
        for held in dict.fromkeys(footer.schema for footer in self._all_footers()):
            # Columns from paths are not in the files, and differing types need casts.
            if any(
                held.names.count(name) != 1 or held.field(name).type != schema.field(name).type
                for name in schema.names
            ):
                return self
        return self._replace(_at_once=True) if decoding.can_decode(schema) else self

    def in_parallel(self) -> ParquetDatasource:
        """Return a datasource that decodes the columns of a row group in parallel."""
        return self._replace(_use_threads=True)  # type: ignore[no-any-return]

    @property
    def reads_at_once(self) -> bool:
        """Whether all rows form a single block."""
        return self._at_once

    def _needed_schema(self) -> pa.Schema:
        whole = self._whole_schema()
        return pa.schema([whole.field(name) for name in self._needed_columns()])

    def _decode_whole(self, runs: list[_Run]) -> pa.Table | None:
        from skate.data._kernels import decoding

        paths = dict.fromkeys(run.file.path for run in runs)
        block = decoding.decode_files(list(paths), self._needed_schema(), sum(run.rows for run in runs))
        output = self._output_columns()
        return block if block is None or output is None else block.select(output)

    # ------------------------------------------------------------ reading, in a worker

    def _read_runs(self, runs: list[_Run]) -> Iterator[pa.Table]:
        return balancing.merge_small(self._blocks_of_runs(runs), self._target)

    def _blocks_of_runs(self, runs: list[_Run]) -> Iterator[pa.Table]:
        if self._at_once and (block := self._decode_whole(runs)) is not None:
            # The decoded data can be far larger than the footers suggest; workers read it in pieces.
            as_expected = tables.nbytes(block) <= 2 * sum(run.bytes for run in runs)
            rows = max(1, block.num_rows if as_expected else _MAX_ROWS)
            yield from (block.slice(start, rows) for start in range(0, max(1, block.num_rows), rows))
            return
        for run in runs:
            try:
                yield from retrying.iterate(
                    functools.partial(self._blocks_of_run, run), f"reading {run.file.path}"
                )
            except Exception as error:
                made = errors.with_path(error, self._KIND, run.file.path)
                if made is error:
                    raise
                raise made from error

    def _blocks_of_run(self, run: _Run) -> Iterator[pa.Table]:
        path = run.file.path
        needed, output, filters = self._needed_columns(), self._output_columns(), self._filters()
        whole = self._whole_schema()
        schema = pa.schema([whole.field(name) for name in needed])
        values = {} if self._parser is None else self._parser(path)
        values = {key: value for key, value in values.items() if key in needed}
        options = {**self._buffering(run), **self._reader_args}
        with self._filesystem.open_input_file(path) as source:
            parquet, repeating = parquet_rows.open_file(source, run.groups, options)
            with parquet:
                pieces = parquet_rows.pieces(
                    parquet,
                    run.groups,
                    run.first_row,
                    columns=[name for name in needed if name in parquet.schema_arrow.names],
                    repeating=repeating,
                    keep=functools.partial(
                        parquet_rows.matching_groups, path, self._filesystem, filters=filters
                    ),
                    row_bytes=run.bytes / run.rows if run.rows else 0,
                    target=self._target,
                    batch_size=self._batch_size,
                    use_threads=self._use_threads,
                    trusted=self._trusted,
                )
                for first_row, block in pieces:
                    block = self._add_columns(block, path, values, first_row, needed)
                    block = schemas.conform(block, schema)
                    for expression in filters:
                        block = block.filter(expression)
                    if output is not None or needed != whole.names:
                        block = block.select(output if output is not None else needed)
                    block = parquet_rows.decode_tensors(block, self._tensor_columns)
                    yield block if self._block_udf is None else self._block_udf(block)

    def _buffering(self, run: _Run) -> dict[str, Any]:
        """Return the options for fetching: whole column chunks, or buffered streams if a chunk exceeds a few blocks."""
        remote = not filesystems.is_local(self._filesystem)
        limit = 4 * (self._target or balancing.DEFAULT_BLOCK_BYTES)
        if run.groups and run.bytes / len(run.groups) > limit:
            return {"pre_buffer": False, "buffer_size": (8 if remote else 1) << 20}
        return {"pre_buffer": remote}

    def _add_columns(
        self, block: pa.Table, path: str, values: dict[str, Any], first_row: int, needed: list[str]
    ) -> pa.Table:
        for key, value in values.items():
            if key not in block.column_names:  # the file's own column takes precedence
                assert self._parser is not None
                column = path_columns.repeat_value(value, block.num_rows, self._parser.arrow_type(key))
                # A schema passed by the user may give a better type than the path.
                column = column.cast(self._whole_schema().field(key).type)
                block = block.append_column(pa.field(key, column.type), column)
        if self._include_paths and path_columns.PATH in needed:
            block = path_columns.add_path_column(block, path)
        if self._include_row_hash and ROW_HASH in needed:
            block = parquet_rows.add_row_hash(block, path, first_row, ROW_HASH)
        return block

    # ------------------------------------------------------------ columns

    _exact = False

    def _output_columns(self) -> list[str] | None:
        """Return the columns of the result; None for all."""
        if self._wanted is None or self._exact:
            return self._wanted
        added = [path_columns.PATH] * self._include_paths + [ROW_HASH] * self._include_row_hash
        return [*self._wanted, *(name for name in added if name not in self._wanted)]

    def _needed_columns(self) -> list[str]:
        """Return the columns of the result and of filters, in the order of the schema."""
        whole = self._whole_schema()
        output = self._output_columns()
        if output is None:
            return list(whole.names)
        validation.select_fields(whole, output)
        needed = set(output)
        if self._predicate is not None:
            needed |= set(self._predicate.columns())
        if self._given_filter is not None:
            # pyarrow does not expose the columns of an expression: take all names that occur in its text.
            text = str(self._given_filter)
            needed |= {name for name in whole.names if name in text}
        return [name for name in whole.names if name in needed]

    def _filters(self) -> list[pc.Expression]:
        pushed = [] if self._predicate is None else [self._predicate.to_pyarrow()]
        return pushed if self._given_filter is None else [self._given_filter, *pushed]

    def _all_footers(self) -> list[parquet_footers.Footer]:
        if self._footers is None:
            self._footers = parquet_footers.read_all(self._files, self._filesystem)
        return self._footers

    def _whole_schema(self) -> pa.Schema:
        """Return the schema of all columns, regardless of the selection."""
        if self._full_schema is None:
            distinct = dict.fromkeys(footer.schema for footer in self._all_footers())
            schema = self._schema if self._schema is not None else schemas.unify(distinct)
            added = self._added_fields()
            names = {field.name for field in added if field.name in (path_columns.PATH, ROW_HASH)}
            fields = [field for field in schema if field.name not in names]
            known = {field.name for field in fields}
            self._full_schema = pa.schema([*fields, *(field for field in added if field.name not in known)])
        return self._full_schema

    def _added_fields(self) -> list[pa.Field]:
        added: dict[str, pa.Field] = {}
        if self._parser is not None:
            for file in self._files:
                for key in self._parser(file.path):
                    added.setdefault(key, pa.field(key, self._parser.arrow_type(key)))
        if self._include_paths:
            added[path_columns.PATH] = pa.field(path_columns.PATH, pa.string())
        if self._include_row_hash:
            added[ROW_HASH] = pa.field(ROW_HASH, pa.uint64())
        return list(added.values())


def _runs_of(file: paths.SourceFile, footer: parquet_footers.Footer, columns: list[str]) -> Iterator[_Run]:
    row_bytes = footer.row_bytes(columns)
    if not footer.rows:  # no row group at all: an empty block still carries the schema
        yield _Run(file, (), 0, 0, 0)
    first_row = 0
    for group, rows in enumerate(footer.rows):
        yield _Run(file, (group,), first_row, rows, int(rows * row_bytes))
        first_row += rows


def _merge_runs(runs: list[_Run]) -> list[_Run]:
    merged: list[_Run] = []
    for run in runs:
        if merged and merged[-1].file == run.file:
            last = merged.pop()
            run = _Run(
                run.file,
                last.groups + run.groups,
                last.first_row,
                last.rows + run.rows,
                last.bytes + run.bytes,
            )
        merged.append(run)
    return merged


def _partition_expression(values: dict[str, Any], schema: pa.Schema) -> pc.Expression:
    parts = [
        pc.field(key).is_null()
        if value is None
        else pc.field(key) == pa.scalar(value).cast(schema.field(key).type)
        for key, value in values.items()
        if key in schema.names
    ]
    return functools.reduce(lambda left, right: left & right, parts, pc.scalar(True))


def _reader_args(given: dict[str, Any]) -> dict[str, Any]:
    if "partitioning" in given:
        raise ValueError(
            "the 'partitioning' parameter isn't supported in dataset_kwargs: pass partitioning= to read_parquet instead"
        )
    if "filters" in given or "filter" in given:
        raise ValueError(
            "Row filtering via 'filters' isn't supported in dataset_kwargs: filter the dataset instead"
        )
    known = set(inspect.signature(pq.ParquetFile).parameters) - {"source"}
    validation.check_known(given, known | _READ_PARQUET_OPTIONS, "read_parquet")
    return dict(given)
