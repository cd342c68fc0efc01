"""Columns of pickled objects in files, and whether the program may unpickle them.

pyarrow reads such a column as bytes, and its field still names the type that the writer gave it. Every block of
every datasource passes `restore_objects`, which converts such a column to Python objects, or raises an error if the
program does not trust the files.
"""

from __future__ import annotations

import os

import pyarrow as pa

from skate.data._block.objects import EXTENSION_NAMES, PythonObjectType

#: Environment variable that allows datasets to unpickle objects in files.
ALLOW_PICKLED = "SKATE_DATA_READ_PICKLED_OBJECTS"
#: Ray's variable for columns of pickled objects.
RAY_ALLOW_PICKLED = "RAY_DATA_AUTOLOAD_PICKLE_OBJECT_SCALAR"
_NAME = b"ARROW:extension:name"


def may_unpickle(*others: str) -> bool:
    """Return whether the environment allows unpickling.

    Args:
        others: Names of Ray's variables with the same meaning.
    """
    return any(os.environ.get(name, "").lower() in ("1", "true") for name in (ALLOW_PICKLED, *others))


def restore_objects(block: pa.Table, trusted: bool) -> pa.Table:
    """Convert the columns of pickled objects in a block of a file to Python objects.

    Args:
        block: The block, with the metadata of its fields.
        trusted: Whether pickled objects may be loaded.

    Raises:
        ValueError: A column holds pickled objects, and the file is not trusted.
    """
    held = block.schema
    schema = restore_schema(held, trusted)
    if schema is held:
        return block
    columns = [
        column if field.type == column.type else _storage(column).cast(field.type)
        for field, column in zip(schema, block.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def restore_schema(schema: pa.Schema, trusted: bool) -> pa.Schema:
    """Return the schema of the blocks that `restore_objects` returns.

    Raises:
        ValueError: A column holds pickled objects, and the file is not trusted.
    """
    pickled = [field.name for field in schema if _holds_pickled(field)]
    if not pickled:
        return schema
    if not trusted:
        raise ValueError(
            f"columns {pickled} hold pickled Python objects, and loading them can run any code. If you trust the "
            f"writer of the files, set {ALLOW_PICKLED}=1; otherwise select other columns"
        )
    return written_schema(schema)


def written_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema that was written, with the Python object type for fields that name it."""
    return pa.schema(
        [pa.field(field.name, PythonObjectType()) if _is_pickled(field) else field for field in schema],
        schema.metadata,
    )


def _is_pickled(field: pa.Field) -> bool:
    """Return whether a field of a file names a type of pickled objects."""
    if isinstance(field.type, PythonObjectType):
        return False  # created by this process: files cannot contain it
    if isinstance(field.type, pa.BaseExtensionType) and field.type.extension_name in EXTENSION_NAMES:
        return True  # a library in this process registered the name
    name = (field.metadata or {}).get(_NAME)
    return name is not None and name.decode(errors="replace") in EXTENSION_NAMES


def _holds_pickled(field: pa.Field) -> bool:
    """Return whether a field names a type of pickled objects, at any depth."""
    if _is_pickled(field):
        return True
    type_ = field.type
    while isinstance(type_, pa.BaseExtensionType) or pa.types.is_dictionary(type_):
        type_ = type_.value_type if pa.types.is_dictionary(type_) else type_.storage_type
    return any(_holds_pickled(type_.field(index)) for index in range(type_.num_fields))


def _storage(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if isinstance(column.type, pa.BaseExtensionType):
        return pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    return column
