"""Read local Parquet files with Polars, which decodes strings in a third of the time of Arrow."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from skate.data._kernels import frames

_TYPES = {
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.bool_(), pa.date32()),
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary()),
}


def can_decode(schema: pa.Schema) -> bool:
    """Return whether Polars reads these columns exactly as Arrow does: plain types and unique names."""
    return len(set(schema.names)) == len(schema) and all(kind in _TYPES for kind in schema.types)


def decode_files(paths: Sequence[str], schema: pa.Schema, rows: int) -> pa.Table | None:
    """Return the rows of files with the same columns, in order.

    Args:
        paths: Local files.
        schema: The columns to read, with their types according to Arrow.
        rows: The number of rows according to the footers.

    Returns:
        The rows; None if Polars cannot read the files, so that Arrow reads them and reports the errors.
    """
    scan = pl.scan_parquet(list(paths), glob=False, hive_partitioning=False, use_statistics=False)
    try:
        frame = scan.select(schema.names).collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
        return None
    if len(frame) != rows:
        return None
    columns = [
        frames.to_arrow(frame[name], kind) for name, kind in zip(schema.names, schema.types, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)
