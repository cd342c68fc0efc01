"""Functions that create datasets from files, other libraries, and data of the program."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import pyarrow as pa

import skate
from skate.data import _from_libraries as _foreign
from skate.data import _read_formats, _read_services
from skate.data._arguments import (
    NON_NEGATIVE,
    POSITIVE,
    ArgumentTypeError,
    check_protocol,
    check_type,
    checked,
    message,
    whole,
)
from skate.data._block import batches
from skate.data._block.errors import BatchTypeError
from skate.data._catalogs import resolve_table
from skate.data._from_libraries import *  # noqa: F403 - what it lists in its `__all__`
from skate.data._io import memory, validation
from skate.data._read_formats import *  # noqa: F403 - what it lists in its `__all__`
from skate.data._read_options import (
    FileOptions,
    TaskOptions,
    dataset_of,
    file_arguments,
    split_options,
    warn_deprecated,
)
from skate.data._read_services import *  # noqa: F403 - what it lists in its `__all__`
from skate.data.dataset import Dataset, MaterializedDataset, materialized
from skate.data.datasource.legacy import LegacyDatasource

if TYPE_CHECKING:
    from skate.data.catalog import Catalog

__all__ = [
    "from_arrow",
    "from_arrow_refs",
    "from_blocks",
    "from_items",
    "from_numpy",
    "from_numpy_refs",
    "from_pandas",
    "from_pandas_refs",
    "range",
    "range_tensor",
    "read_binary_files",
    "read_csv",
    "read_datasource",
    "read_images",
    "read_json",
    "read_numpy",
    "read_parquet",
    "read_text",
]
__all__ += _foreign.__all__
__all__ += _read_formats.__all__
__all__ += _read_services.__all__

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@checked("n")
def range(n: int, **options: Unpack[TaskOptions]) -> Dataset:
    """Create a dataset of the numbers from 0 to `n`, exclusive, in a column `id`.

    >>> range(3).take_all()
    [{'id': 0}, {'id': 1}, {'id': 2}]
    """
    return dataset_of(memory.RangeDatasource(whole("n", n, NON_NEGATIVE)), options)


@checked("n", shape=NON_NEGATIVE)
def range_tensor(n: int, *, shape: tuple[int, ...] = (1,), **options: Unpack[TaskOptions]) -> Dataset:
    """Create a dataset of tensors in a column `data`, the i-th filled with i.

    >>> range_tensor(2, shape=(2,)).take_all()
    [{'data': array([0, 0])}, {'data': array([1, 1])}]
    """
    return dataset_of(memory.RangeDatasource(whole("n", n, NON_NEGATIVE), tuple(shape)), options)


@checked(override_num_blocks=POSITIVE)
def from_items(
    items: list[Any], *, parallelism: int = -1, override_num_blocks: int | None = None
) -> MaterializedDataset:
    """Create a dataset from Python objects: dicts as rows, other values in a column `item`.

    >>> from_items([1, 2]).take_all()
    [{'item': 1}, {'item': 2}]
    """
    count = override_num_blocks or (parallelism if parallelism > 0 else max(1, len(items) // 1000))
    return materialized(memory.blocks_of_items(items, count), label="FromItems")


@checked(override_num_blocks=POSITIVE)
def from_pandas(dfs: Any, override_num_blocks: int | None = None) -> MaterializedDataset:
    """Create a dataset from pandas DataFrames, with one block each."""
    given = dfs if isinstance(dfs, list) else [dfs]
    words = "a pandas DataFrame or a list of them"
    return _from_batches(given, override_num_blocks, "FromPandas", "dfs", words)


@checked(override_num_blocks=POSITIVE)
def from_arrow(tables: Any, *, override_num_blocks: int | None = None) -> MaterializedDataset:
    """Create a dataset from Arrow tables (or IPC streams as bytes), with one block each.

    >>> import pyarrow as pa
    >>> from_arrow(pa.table({"a": [1]})).take_all()
    [{'a': 1}]
    """
    from skate.data._io.arrow_ipc import from_stream

    given = tables if isinstance(tables, list) else [tables]
    words = "a pyarrow Table, an Arrow IPC stream as bytes, or a list of them"
    try:
        read = [from_stream(each) if isinstance(each, bytes) else each for each in given]
    except pa.ArrowInvalid as error:
        raise ValueError(f"{message('tables', words, tables)} Arrow reports: {error}") from error
    return _from_batches(read, override_num_blocks, "FromArrow", "tables", words)


def from_numpy(ndarrays: Any) -> MaterializedDataset:
    """Create a dataset from NumPy arrays, with one block each; the first axis holds the rows of a column `data`.

    >>> from_numpy(np.arange(2)).take_all()
    [{'data': 0}, {'data': 1}]
    """
    given = ndarrays if isinstance(ndarrays, list) else [ndarrays]
    arrays = [np.asarray(each) for each in given]
    for each, array in zip(given, arrays, strict=True):
        if array.ndim == 0:
            words = "an array of at least one dimension or a list of arrays"
            raise ArgumentTypeError(message("ndarrays", words, each))
    return _from_batches([{"data": array} for array in arrays], None, "FromNumpy", "ndarrays", "arrays")


@checked()
def from_blocks(blocks: list[Any]) -> MaterializedDataset:
    """Create a dataset from blocks: Arrow tables or pandas DataFrames."""
    words = "a list of Arrow tables or pandas DataFrames"
    return _from_batches(blocks, None, "FromBlocks", "blocks", words)


def from_arrow_refs(tables: Any) -> MaterializedDataset:
    """Create a dataset from references to Arrow tables."""
    return from_arrow(_fetch("tables", tables))


def from_pandas_refs(dfs: Any) -> MaterializedDataset:
    """Create a dataset from references to pandas DataFrames."""
    return from_pandas(_fetch("dfs", dfs))


def from_numpy_refs(ndarrays: Any) -> MaterializedDataset:
    """Create a dataset from references to NumPy arrays."""
    return from_numpy(_fetch("ndarrays", ndarrays))


def _fetch(name: str, references: Any) -> list[Any]:
    given = references if isinstance(references, list) else [references]
    for each in given:
        check_type(name, each, skate.ObjectRef, "an ObjectRef or a list of them")
    found: list[Any] = skate.get(given)
    return found


def _from_batches(
    given: list[Any], blocks: int | None, label: str, name: str, words: str
) -> MaterializedDataset:
    """Create a dataset from batches; errors use the name of the parameter and the phrase for valid values."""
    made = []
    for each in given:
        try:
            made.append(batches.to_block(each))
        except BatchTypeError as error:
            if error.what != "a batch":
                raise
            raise ArgumentTypeError(message(name, words, each)) from None
    return materialized(memory.cut_evenly(made, blocks), label=label)


def read_datasource(datasource: Any, **options: Any) -> Dataset:
    """Create a dataset from a custom datasource.

    Args:
        datasource: A `Datasource`.
        **options: Those of `TaskOptions`; others are passed to a datasource with Ray's older interface, `create_reader`
            or `prepare_read`.
    """
    read_args = {key: options.pop(key) for key in list(options) if key not in TaskOptions.__annotations__}
    if LegacyDatasource.is_one(datasource):
        return dataset_of(LegacyDatasource(datasource, read_args), options)
    validation.check_known(read_args, TaskOptions.__annotations__, "read_datasource")
    check_protocol("datasource", datasource, "get_read_tasks", "a Datasource")
    return dataset_of(datasource, options)


@checked("skip_paths")
def read_parquet(
    paths: Paths,
    *,
    columns: list[str] | None = None,
    catalog: Catalog | None = None,
    tensor_column_schema: dict[str, Any] | None = None,
    include_row_hash: bool = False,
    skip_paths: Paths | None = None,
    dataset_kwargs: dict[str, Any] | None = None,
    **options: Any,
) -> Dataset:
    """Create a dataset from Parquet files.

    Files are divided by row groups. Unused columns, and row groups that cannot match a filter, are not read:
    `read_parquet(…).filter(expr=…).select_columns(…)` reads only what it needs.

    Args:
        paths: Files, folders, globs, or URIs.
        columns: Columns to read. Deprecated in Ray in favor of `select_columns`.
        catalog: Catalog to look up the table in; the path is the name of the table.
        tensor_column_schema: Type and shape of the tensors in columns of bytes.
        include_row_hash: Add a column with an identifier of each row.
        skip_paths: Files to skip; they need not exist.
        dataset_kwargs: Options of pyarrow's reader. Deprecated in Ray.
        **options: Those of `FileOptions`, and further ones of pyarrow's reader (`filter`, `schema`, …).
    """
    from skate.data._io.parquet import ParquetDatasource

    if columns is not None:
        warn_deprecated("`columns=` on `read_parquet`", "call `select_columns([...])` on the dataset")
    if dataset_kwargs is not None:
        warn_deprecated(
            "`dataset_kwargs` on `read_parquet`", "pass pyarrow's options to `read_parquet` itself"
        )
    given, own = split_options(options)
    if catalog is not None:
        found = resolve_table(catalog, paths, "parquet")
        paths = found.path
        given.setdefault("filesystem", found.filesystem)
    own_keys = ("schema", "filter", "batch_size", "use_threads", "_block_udf")
    direct = {key: own.pop(key) for key in own_keys if key in own}
    source = ParquetDatasource(
        paths,
        columns=columns,
        tensor_column_schema=tensor_column_schema,
        include_row_hash=include_row_hash,
        skip_paths=skip_paths,
        dataset_kwargs={**(dataset_kwargs or {}), **own},
        **direct,
        **file_arguments(given),
    )
    return dataset_of(source, given)


@checked()
def read_csv(paths: Paths, **options: Any) -> Dataset:
    """Create a dataset from CSV files.

    Args:
        paths: Files, folders, globs, or URIs.
        **options: Those of `FileOptions`, and `read_options`, `parse_options` and `convert_options` of pyarrow.
    """
    from skate.data._io.csv import CSVDatasource

    given, own = split_options(options)
    return dataset_of(CSVDatasource(paths, arrow_csv_args=own, **file_arguments(given)), given)


@checked()
def read_json(paths: Paths, *, lines: bool = False, **options: Any) -> Dataset:
    """Create a dataset from JSON files: one object per line, or an array of objects.

    Args:
        paths: Files, folders, globs, or URIs.
        lines: Whether files hold one object per line; detected by default.
        **options: Those of `FileOptions`, and `read_options` and `parse_options` of pyarrow.
    """
    from skate.data._io.json import JSONDatasource

    given, own = split_options(options)
    return dataset_of(JSONDatasource(paths, lines=lines, arrow_json_args=own, **file_arguments(given)), given)


@checked()
def read_text(
    paths: Paths, *, encoding: str = "utf-8", drop_empty_lines: bool = True, **options: Unpack[FileOptions]
) -> Dataset:
    """Create a dataset from the lines of text files, in a column `text`.

    Args:
        paths: Files, folders, globs, or URIs.
        encoding: Encoding of the files.
        drop_empty_lines: Skip empty lines.
        **options: Those of `FileOptions`.
    """
    from skate.data._io.plain_files import TextDatasource

    source = TextDatasource(
        paths, encoding=encoding, drop_empty_lines=drop_empty_lines, **file_arguments(options)
    )
    return dataset_of(source, options)


@checked()
def read_binary_files(paths: Paths, **options: Unpack[FileOptions]) -> Dataset:
    """Create a dataset from whole files, in a column `bytes`.

    Args:
        paths: Files, folders, globs, or URIs.
        **options: Those of `FileOptions`.
    """
    from skate.data._io.plain_files import BinaryDatasource

    return dataset_of(BinaryDatasource(paths, **file_arguments(options)), options)


@checked()
def read_numpy(paths: Paths, *, allow_pickle: bool = False, **options: Any) -> Dataset:
    """Create a dataset from `.npy` files, in a column `data`.

    Args:
        paths: Files, folders, globs, or URIs.
        allow_pickle: Read arrays of Python objects, which can run code.
        **options: Those of `FileOptions`, and of `numpy.load`.
    """
    from skate.data._io.numpy import NumpyDatasource

    given, own = split_options(options)
    own = {**own.pop("numpy_load_args", {}), **own, "allow_pickle": allow_pickle}
    return dataset_of(NumpyDatasource(paths, numpy_load_args=own, **file_arguments(given)), given)


@checked("size")
def read_images(
    paths: Paths,
    *,
    size: tuple[int, int] | None = None,
    mode: str | None = None,
    arrow_open_file_args: dict[str, Any] | None = None,
    **options: Unpack[FileOptions],
) -> Dataset:
    """Create a dataset from image files, in a column `image`.

    Args:
        paths: Files, folders, globs, or URIs.
        size: Height and width to resize images to.
        mode: Pillow mode to convert images to, such as "RGB".
        arrow_open_file_args: Options for opening files.
        **options: Those of `FileOptions`.
    """
    from skate.data._io.media import ImageDatasource

    source = ImageDatasource(
        paths, size=size, mode=mode, arrow_open_file_args=arrow_open_file_args, **file_arguments(options)
    )
    return dataset_of(source, options)
