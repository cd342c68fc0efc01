"""Columns of Python objects without an Arrow type, pickled one by one.

Reading a value unpickles it, which can run code. The type is therefore not registered with pyarrow: no file, stream
or other library can give a column this type by its name. A column has it because this program created it, or because
a process of the same session sent the block in a pickle. `skate.data._io.pickled_columns` handles columns of files.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import cloudpickle
import numpy.typing as npt
import pyarrow as pa

from skate.data._block.tensors import object_array
from skate.util.serialization import register_serializer

# Types without nested values, which `pickle` writes ten times as fast as cloudpickle.
_PLAIN = frozenset({bool, int, float, complex, str, bytes})


class PythonObjectScalar(pa.ExtensionScalar):  # type: ignore[misc]  # pyarrow has no type information
    """One Python object in a column."""

    def as_py(self, **kwargs: Any) -> Any:
        """Return the object."""
        return None if self.value is None else pickle.loads(self.value.as_py())


class PythonObjectArray(pa.ExtensionArray):  # type: ignore[misc]  # pyarrow has no type information
    """A column of Python objects."""

    def to_objects(self) -> list[Any]:
        """Return the objects, with None for nulls."""
        loads = pickle.loads
        return [None if data is None else loads(data) for data in self.storage.to_pylist()]

    def to_pylist(self, **kwargs: Any) -> list[Any]:
        """Return the objects, with None for nulls."""
        return self.to_objects()

    def to_numpy(self, zero_copy_only: bool = False, **kwargs: Any) -> npt.NDArray[Any]:
        """Return the objects as an ndarray of dtype object."""
        return object_array(self.to_objects())

    @classmethod
    def from_objects(cls, objects: Iterable[Any]) -> PythonObjectArray:
        """Create a column of objects; None becomes null."""
        column: PythonObjectArray = from_objects(objects)
        return column


#: Names of pickled columns in files: Skate's own, and Ray's.
EXTENSION_NAME = "skate.python_object"
EXTENSION_NAMES = frozenset({EXTENSION_NAME, "ray.data.arrow_pickled_object"})


class PythonObjectType(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no type information
    """The Arrow type of a column of pickled Python objects.

    The type is not registered: `pyarrow.parquet.read_table` returns such a column of a file as bytes.

    Example:
        >>> PythonObjectType()
        PythonObjectType()
    """

    def __init__(self) -> None:
        super().__init__(pa.large_binary(), EXTENSION_NAME)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> PythonObjectType:
        return cls()

    def __arrow_ext_class__(self) -> type:
        return PythonObjectArray

    def __arrow_ext_scalar_class__(self) -> type:
        return PythonObjectScalar

    def __reduce__(self) -> tuple[Any, ...]:
        return PythonObjectType, ()

    def __hash__(self) -> int:
        return hash(self.extension_name)

    def __str__(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        return "PythonObjectType()"


def from_objects(objects: Iterable[Any]) -> Any:
    """Create a column of Python objects; None becomes null."""
    pickled = [None if value is None else _pickle(value) for value in objects]
    return pa.ExtensionArray.from_storage(PythonObjectType(), pa.array(pickled, pa.large_binary()))


def _pickle(value: Any) -> bytes:
    if type(value) in _PLAIN:
        return pickle.dumps(value, protocol=5)
    # An instance of a class in the user's `__main__`, at any depth, needs cloudpickle.
    data: bytes = cloudpickle.dumps(value, protocol=5)
    return data


def _schema_parts(schema: pa.Schema) -> tuple[list[pa.Field], dict[bytes, bytes] | None]:
    return list(schema), schema.metadata


def _make_schema(parts: tuple[list[pa.Field], dict[bytes, bytes] | None]) -> pa.Schema:
    return pa.schema(*parts)


# As pyarrow pickles schemas. Ray's pickler would write them in Arrow's format, in which types that are not registered
# become those of their storage.
register_serializer(pa.Schema, serializer=_schema_parts, deserializer=_make_schema)
