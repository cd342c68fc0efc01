"""Datasource and datasink for CSV files."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.csv as pacsv

from skate.data._arguments import check_type
from skate.data._io import paths, streams, validation
from skate.data.block import BlockAccessor
from skate.data.datasource.file_based_datasource import FileBasedDatasource
from skate.data.datasource.file_datasink import BlockBasedFileDatasink
from skate.data.datasource.partitioning import Partitioning, PartitionStyle
from skate.data.exceptions import FileReadError

# pyarrow infers types from the first block: a large block gives better types, and fewer tables.
_BLOCK_BYTES = 8 << 20
_CONVERSION = re.compile(r"In CSV column #(\d+): .*?CSV conversion error to ([^:]+):", re.DOTALL)
# Wider types to try when a later value does not fit the inferred type.
_WIDER_TYPES = {"null": pa.string(), "int64": pa.float64()}
# Remedies, by a fragment of pyarrow's error message.
_HINTS = {
    "conversion error": "Name the type: convert_options=pyarrow.csv.ConvertOptions(column_types={'column': 'string'})",
    "parse error": "Skip such rows: parse_options=pyarrow.csv.ParseOptions(invalid_row_handler=lambda row: 'skip')",
    "invalid UTF8": "Name the encoding: read_options=pyarrow.csv.ReadOptions(encoding='latin-1')",
}
# Options of pyarrow that `read_csv` accepts.
_OPTIONS = {
    "read_options": pacsv.ReadOptions,
    "parse_options": pacsv.ParseOptions,
    "convert_options": pacsv.ConvertOptions,
}
_OTHER_FILES = "if the folder holds other files too, pass file_extensions=['csv']"


class CSVDatasource(FileBasedDatasource):
    """Read CSV files, block by block.

    Args:
        paths: Files, folders, globs or URIs.
        arrow_csv_args: `read_options`, `parse_options` and `convert_options` of `pyarrow.csv`.
        file_args: As for `FileBasedDatasource`.
    """

    _KIND: ClassVar[str] = "CSV"

    def __init__(
        self,
        paths: paths.Paths,
        *,
        arrow_csv_args: dict[str, Any] | None = None,
        partitioning: Partitioning | None = Partitioning(PartitionStyle.HIVE),  # noqa: B008 - never changed
        **file_args: Any,
    ) -> None:
        given = dict(arrow_csv_args or {})
        validation.check_known(given, tuple(_OPTIONS), "read_csv", ("paths",))
        for name, value in given.items():
            if value is not None:
                check_type(name, value, _OPTIONS[name], f"pyarrow.csv.{_OPTIONS[name].__name__}(…)")
        # Tasks already run in parallel: use no threads within one.
        self._read_options = given.pop("read_options", None) or pacsv.ReadOptions(
            use_threads=False, block_size=_BLOCK_BYTES
        )
        self._parse_options = given.pop("parse_options", None) or pacsv.ParseOptions()
        self._convert_options = given.pop("convert_options", None) or pacsv.ConvertOptions()
        super().__init__(paths, partitioning=partitioning, **file_args)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        yielded = 0
        widened: dict[str, pa.DataType] = {}
        with contextlib.ExitStack() as reopened:
            while True:
                try:
                    for block in self._blocks_after(f, yielded, widened):
                        yield block
                        yielded += block.num_rows
                    return
                except pa.ArrowInvalid as error:
                    column = self._find_wider_type(error, f, path)
                    if column is None or column[0] in widened:
                        raise FileReadError("CSV", path, str(error), _hint(str(error))) from error
                    widened[column[0]] = column[1]
                    f = streams.open_stream(self._filesystem, path, **self._open_args)
                    reopened.enter_context(f)

    def _blocks_after(
        self, file: pa.NativeFile, skipped: int, widened: dict[str, pa.DataType]
    ) -> Iterator[pa.Table]:
        options = self._convert_options
        if widened:
            options = _with_column_types(options, {**options.column_types, **widened})
        with pacsv.open_csv(
            file, self._read_options, _make_picklable(self._parse_options), options
        ) as reader:
            schema = reader.schema
            empty = True
            for batch in reader:
                empty = False
                block = pa.Table.from_batches([batch])
                if skipped:
                    dropped = min(skipped, block.num_rows)
                    skipped -= dropped
                    block = block.slice(dropped)
                if block.num_rows:
                    yield block
            if empty:
                yield schema.empty_table()

    def _find_wider_type(
        self, error: pa.ArrowInvalid, file: pa.NativeFile, path: str
    ) -> tuple[str, pa.DataType] | None:
        """Return the column that a value did not fit and the type to try; None if the user named the type."""
        match = _CONVERSION.search(str(error))
        wider = _WIDER_TYPES.get(match.group(2).strip()) if match else None
        if match is None or wider is None:
            return None
        with streams.open_stream(self._filesystem, path, **self._open_args) as again:
            options = pacsv.ReadOptions(
                use_threads=False,
                column_names=self._read_options.column_names,
                autogenerate_column_names=self._read_options.autogenerate_column_names,
                skip_rows=self._read_options.skip_rows,
                encoding=self._read_options.encoding,
                block_size=self._read_options.block_size,
            )
            with pacsv.open_csv(again, options, _make_picklable(self._parse_options)) as reader:
                names = reader.schema.names
        name = names[int(match.group(1))]
        return None if name in self._convert_options.column_types else (name, wider)


class CSVDatasink(BlockBasedFileDatasink):
    """Write CSV files.

    Args:
        path: The folder.
        arrow_csv_args_fn: Function that returns such options, for those that cannot be pickled.
        arrow_csv_args: Options for `pyarrow.csv.write_csv`.
        file_args: As for `BlockBasedFileDatasink`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        arrow_csv_args_fn: Callable[[], dict[str, Any]] | None = None,
        arrow_csv_args: dict[str, Any] | None = None,
        **file_args: Any,
    ) -> None:
        super().__init__(path, file_format=file_args.pop("file_format", "csv"), **file_args)
        self._args_fn = arrow_csv_args_fn
        self._args = dict(arrow_csv_args or {})

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        """Write a block as a file with a header."""
        args = {**self._args, **(self._args_fn() if self._args_fn is not None else {})}
        options = args.pop("write_options", None)
        pacsv.write_csv(block.to_arrow(), file, options, **args)


def _hint(message: str) -> str:
    found = [hint for part, hint in _HINTS.items() if part in message]
    return "; ".join([*found, _OTHER_FILES]) if found else _OTHER_FILES.capitalize()


def _make_picklable(options: pacsv.ParseOptions) -> pacsv.ParseOptions:
    """Return options that survive pickling; pyarrow's own lose their handler for invalid rows."""
    if options.invalid_row_handler is not None:
        return options
    return pacsv.ParseOptions(
        delimiter=options.delimiter,
        quote_char=options.quote_char,
        double_quote=options.double_quote,
        escape_char=options.escape_char,
        newlines_in_values=options.newlines_in_values,
        ignore_empty_lines=options.ignore_empty_lines,
    )


def _with_column_types(
    options: pacsv.ConvertOptions, column_types: dict[str, pa.DataType]
) -> pacsv.ConvertOptions:
    return pacsv.ConvertOptions(
        check_utf8=options.check_utf8,
        column_types=column_types,
        null_values=options.null_values,
        true_values=options.true_values,
        false_values=options.false_values,
        decimal_point=options.decimal_point,
        strings_can_be_null=options.strings_can_be_null,
        quoted_strings_can_be_null=options.quoted_strings_can_be_null,
        include_columns=options.include_columns,
        include_missing_columns=options.include_missing_columns,
        auto_dict_encode=options.auto_dict_encode,
        auto_dict_max_cardinality=options.auto_dict_max_cardinality,
        timestamp_parsers=options.timestamp_parsers,
    )
