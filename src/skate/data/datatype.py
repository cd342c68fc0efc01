"""Data types of columns, backed by Arrow types, NumPy dtypes or Python classes."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skate.air._optional import load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["DataType", "TypeCategory"]

_DEFAULT_UNITS = {"timestamp": "us", "time32": "s", "time64": "us", "duration": "us"}
_UNITS = {"time32": ("s", "ms"), "time64": ("us", "ns")}


class TypeCategory(StrEnum):
    """A family of types for `DataType.is_of`."""

    LIST = "list"
    LARGE_LIST = "large_list"
    STRUCT = "struct"
    MAP = "map"
    TENSOR = "tensor"
    TEMPORAL = "temporal"


@dataclass(frozen=True, eq=False, repr=False)
class DataType:
    """The type of a column: an Arrow type, a NumPy dtype or a Python class.

    Args:
        _physical_dtype: A `pyarrow.DataType`, a `numpy.dtype` or a class.

    Raises:
        TypeError: The argument is none of these.

    >>> DataType.list(DataType.int32())
    DataType(arrow:list<item: int32>)
    >>> DataType.from_numpy("float32").to_arrow_dtype()
    DataType(float)
    """

    _physical_dtype: pa.DataType | np.dtype[Any] | type

    def __post_init__(self) -> None:
        if not isinstance(self._physical_dtype, (pa.DataType, np.dtype, type)):
            raise TypeError(
                "DataType supports only PyArrow DataType, NumPy dtype, or Python type, got "
                f"{self._physical_dtype!r} ({type(self._physical_dtype).__name__})"
            )

    def __eq__(self, other: object) -> builtins.bool:
        # NumPy dtypes equal classes and strings (np.dtype("int64") == int); here they are different types.
        return (
            isinstance(other, DataType)
            and self._family == other._family
            and builtins.bool(self._physical_dtype == other._physical_dtype)
        )

    def __hash__(self) -> int:
        return hash((self._family, self._physical_dtype))

    def __repr__(self) -> str:
        name = (
            self._physical_dtype.__name__
            if isinstance(self._physical_dtype, type)
            else str(self._physical_dtype)
        )
        return f"DataType({self._family}:{name})"

    @property
    def _family(self) -> str:
        if isinstance(self._physical_dtype, pa.DataType):
            return "arrow"
        return "numpy" if isinstance(self._physical_dtype, np.dtype) else "python"

    def is_arrow_type(self) -> builtins.bool:
        """Return whether it is an Arrow type."""
        return self._family == "arrow"

    def is_numpy_type(self) -> builtins.bool:
        """Return whether it is a NumPy dtype."""
        return self._family == "numpy"

    def is_python_type(self) -> builtins.bool:
        """Return whether it is a Python class."""
        return self._family == "python"

    # Conversions.

    def to_arrow_dtype(self, values: Sequence[Any] | None = None) -> pa.DataType:
        """Return the Arrow type.

        Args:
            values: Values of the column; needed only to determine the type for a Python class.

        Raises:
            TypeError: The type is a Python class, and no values are given.
        """
        if isinstance(self._physical_dtype, pa.DataType):
            return self._physical_dtype
        if isinstance(self._physical_dtype, np.dtype):
            if self._physical_dtype.kind in "US":  # fixed width in NumPy only
                return pa.string() if self._physical_dtype.kind == "U" else pa.binary()
            return pa.from_numpy_dtype(self._physical_dtype)
        if values is None or len(values) == 0:
            raise TypeError(
                f"Python-type-backed DataType {self!r} requires values to find its Arrow type: pass some, or"
                " name an Arrow type, such as DataType.int64() or DataType.string()"
            )
        return pa.array(values).type

    def to_numpy_dtype(self) -> np.dtype[Any]:
        """Return the NumPy dtype; `object` for types unknown to NumPy."""
        if isinstance(self._physical_dtype, np.dtype):
            return self._physical_dtype
        if isinstance(self._physical_dtype, pa.DataType):
            try:
                found: np.dtype[Any] = np.dtype(self._physical_dtype.to_pandas_dtype())
            except (NotImplementedError, TypeError):
                return np.dtype("object")
            return found
        return np.dtype("object")

    def to_python_type(self) -> type:
        """Return the Python class.

        Raises:
            ValueError: The type is an Arrow type or a NumPy dtype.
        """
        if not isinstance(self._physical_dtype, type):
            raise ValueError(
                f"{self!r} is not backed by a Python type: convert it with to_arrow_dtype() or to_numpy_dtype()"
            )
        return self._physical_dtype

    @classmethod
    def from_arrow(cls, arrow_type: pa.DataType) -> DataType:
        """Create it from an Arrow type."""
        return cls(arrow_type)

    @classmethod
    def from_numpy(cls, numpy_dtype: np.dtype[Any] | str) -> DataType:
        """Create it from a NumPy dtype or its name."""
        return cls(np.dtype(numpy_dtype))

    @classmethod
    def from_cudf(cls, cudf_dtype: Any) -> DataType:
        """Create it from a cuDF dtype."""
        cudf = load("cudf", "DataType.from_cudf", "cudf-cu12")
        return cls(cudf.Series([], dtype=cudf_dtype).to_arrow().type)

    def to_cudf_type(self) -> Any:
        """Return the cuDF dtype."""
        cudf = load("cudf", "DataType.to_cudf_type", "cudf-cu12")
        return cudf.Series.from_arrow(pa.array([], self.to_arrow_dtype())).dtype

    @classmethod
    def from_dtype(cls, dtype: Any) -> DataType | None:
        """Create it from any description of a type; None if it is not recognized.

        Args:
            dtype: A `DataType`, an Arrow type, a NumPy dtype or scalar class or name, a class, or a pandas extension
                dtype.
        """
        if dtype is None or isinstance(dtype, DataType):
            return dtype
        if isinstance(dtype, (pa.DataType, np.dtype)):
            return cls(dtype)
        if isinstance(dtype, type):
            return cls(np.dtype(dtype)) if issubclass(dtype, np.generic) else cls(dtype)
        if isinstance(dtype, str):
            try:
                return cls(np.dtype(dtype))
            except TypeError:
                return None
        return cls._from_pandas(dtype)

    @classmethod
    def _from_pandas(cls, dtype: Any) -> DataType | None:
        # Check by attribute, so that pandas is not imported.
        if isinstance(arrow_type := getattr(dtype, "pyarrow_dtype", None), pa.DataType):
            return cls(arrow_type)
        if isinstance(numpy_dtype := getattr(dtype, "numpy_dtype", None), np.dtype):
            return cls(numpy_dtype)
        return cls(pa.string()) if getattr(dtype, "name", None) == "string" else None

    @classmethod
    def infer_dtype(cls, value: Any) -> DataType:
        """Infer the type of a value: a NumPy dtype for arrays and scalars, else an Arrow type, else its class."""
        if isinstance(value, (np.ndarray, np.generic)):
            return cls(value.dtype)
        try:
            return cls(pa.scalar(value).type)
        except (pa.ArrowException, OverflowError):
            return cls(type(value))

    # Nested and parametric types.

    @classmethod
    def list(cls, value_type: DataType) -> DataType:
        """Return the type of lists."""
        return cls(pa.list_(value_type.to_arrow_dtype()))

    @classmethod
    def large_list(cls, value_type: DataType) -> DataType:
        """Return the type of lists whose column may hold more than 2³¹ elements."""
        return cls(pa.large_list(value_type.to_arrow_dtype()))

    @classmethod
    def fixed_size_list(cls, value_type: DataType, list_size: int) -> DataType:
        """Return the type of lists of one length."""
        return cls(pa.list_(value_type.to_arrow_dtype(), list_size))

    @classmethod
    def struct(cls, fields: Sequence[tuple[str, DataType]]) -> DataType:
        """Return the type of structs with named fields."""
        return cls(pa.struct([(name, dtype.to_arrow_dtype()) for name, dtype in fields]))

    @classmethod
    def map(cls, key_type: DataType, value_type: DataType) -> DataType:
        """Return the type of maps."""
        return cls(pa.map_(key_type.to_arrow_dtype(), value_type.to_arrow_dtype()))

    @classmethod
    def tensor(cls, shape: tuple[int, ...], dtype: DataType) -> DataType:
        """Return the type of tensors of one shape."""
        return cls(pa.fixed_shape_tensor(dtype.to_arrow_dtype(), shape))

    @classmethod
    def variable_shaped_tensor(cls, dtype: DataType, ndim: int = 2) -> DataType:
        """Return the type of tensors of different shapes."""
        from skate.data._block.tensors import VariableShapedTensorType

        return cls(VariableShapedTensorType(dtype.to_arrow_dtype(), ndim))

    @classmethod
    def temporal(cls, temporal_type: str, unit: str | None = None, tz: str | None = None) -> DataType:
        """Return a temporal type.

        Args:
            temporal_type: `timestamp`, `date32`, `date64`, `time32`, `time64` or `duration`.
            unit: `s`, `ms`, `us` or `ns`; dates have none.
            tz: The time zone of a timestamp.

        Raises:
            ValueError: The type does not exist, or does not have that unit.
        """
        unit = unit or _DEFAULT_UNITS.get(temporal_type)
        if temporal_type in _UNITS and unit not in _UNITS[temporal_type]:
            allowed = " or ".join(repr(name) for name in _UNITS[temporal_type])
            raise ValueError(f"{temporal_type} unit must be {allowed}, got {unit!r}")
        makers: dict[str, Callable[[], pa.DataType]] = {
            "timestamp": lambda: pa.timestamp(unit, tz=tz),
            "date32": pa.date32,
            "date64": pa.date64,
            "time32": lambda: pa.time32(unit),
            "time64": lambda: pa.time64(unit),
            "duration": lambda: pa.duration(unit),
        }
        if temporal_type not in makers:
            raise ValueError(f"Invalid temporal_type {temporal_type!r}; use one of {', '.join(makers)}")
        return cls(makers[temporal_type]())

    # Predicates.

    def _arrow(self) -> pa.DataType | None:
        return self._physical_dtype if isinstance(self._physical_dtype, pa.DataType) else None

    def _check(self, of_arrow: Callable[[Any], Any], kinds: str, classes: tuple[type, ...]) -> builtins.bool:
        """Evaluate the predicate for the family of the type."""
        if isinstance(self._physical_dtype, pa.DataType):
            return builtins.bool(of_arrow(self._physical_dtype))
        if isinstance(self._physical_dtype, np.dtype):
            return self._physical_dtype.kind in kinds
        return self._physical_dtype in classes

    def is_of(self, category: TypeCategory | str) -> builtins.bool:
        """Return whether the type belongs to a category; False for an unknown category."""
        questions: dict[str, Callable[[], builtins.bool]] = {
            "list": self.is_list_type,
            "large_list": lambda: self._arrow() is not None and pa.types.is_large_list(self._arrow()),
            "struct": self.is_struct_type,
            "map": self.is_map_type,
            "tensor": self.is_tensor_type,
            "temporal": self.is_temporal_type,
        }
        question = questions.get(category.value if isinstance(category, TypeCategory) else category)
        return question is not None and question()

    def is_list_type(self) -> builtins.bool:
        """Return whether it holds lists; tensors are not lists."""
        return self._check(
            lambda t: pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t),
            "",
            (),
        )

    def is_tensor_type(self) -> builtins.bool:
        """Return whether it holds tensors."""
        arrow_type = self._arrow()
        if isinstance(arrow_type, pa.FixedShapeTensorType):
            return True
        from skate.data._block.tensors import VariableShapedTensorType

        return isinstance(arrow_type, VariableShapedTensorType)

    def is_struct_type(self) -> builtins.bool:
        """Return whether it holds structs with named fields."""
        return self._check(pa.types.is_struct, "", ())

    def is_map_type(self) -> builtins.bool:
        """Return whether it holds maps."""
        return self._check(pa.types.is_map, "", ())

    def is_nested_type(self) -> builtins.bool:
        """Return whether its values are nested."""
        return self._check(pa.types.is_nested, "", ())

    def is_null_type(self) -> builtins.bool:
        """Return whether it holds only nulls."""
        return self._check(pa.types.is_null, "", (type(None),))

    def is_boolean_type(self) -> builtins.bool:
        """Return whether it holds booleans."""
        return self._check(pa.types.is_boolean, "b", (builtins.bool,))

    def is_integer_type(self) -> builtins.bool:
        """Return whether it holds integers."""
        return self._check(pa.types.is_integer, "iu", (int,))

    def is_floating_type(self) -> builtins.bool:
        """Return whether it holds floating-point numbers."""
        return self._check(pa.types.is_floating, "f", (float,))

    def is_uint64_type(self) -> builtins.bool:
        """Return whether it holds 64-bit unsigned integers."""
        return self._arrow() == pa.uint64() or self == DataType(np.dtype("uint64"))

    def is_numerical_type(self) -> builtins.bool:
        """Return whether it holds numbers."""
        return self._check(
            lambda t: pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t),
            "iufc",
            (int, float, complex),
        )

    def is_string_type(self) -> builtins.bool:
        """Return whether it holds text."""
        return self._check(
            lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t),
            "U",
            (str,),
        )

    def is_binary_type(self) -> builtins.bool:
        """Return whether it holds bytes."""
        return self._check(
            lambda t: (
                pa.types.is_binary(t)
                or pa.types.is_large_binary(t)
                or pa.types.is_fixed_size_binary(t)
                or pa.types.is_binary_view(t)
            ),
            "S",
            (bytes, bytearray),
        )

    def is_temporal_type(self) -> builtins.bool:
        """Return whether it holds datetimes or durations."""
        return self._check(pa.types.is_temporal, "Mm", ())

    # Primitive types.

    @classmethod
    def int8(cls) -> DataType:
        """Return the type of 8-bit integers."""
        return cls(pa.int8())

    @classmethod
    def int16(cls) -> DataType:
        """Return the type of 16-bit integers."""
        return cls(pa.int16())

    @classmethod
    def int32(cls) -> DataType:
        """Return the type of 32-bit integers."""
        return cls(pa.int32())

    @classmethod
    def int64(cls) -> DataType:
        """Return the type of 64-bit integers."""
        return cls(pa.int64())

    @classmethod
    def uint8(cls) -> DataType:
        """Return the type of 8-bit unsigned integers."""
        return cls(pa.uint8())

    @classmethod
    def uint16(cls) -> DataType:
        """Return the type of 16-bit unsigned integers."""
        return cls(pa.uint16())

    @classmethod
    def uint32(cls) -> DataType:
        """Return the type of 32-bit unsigned integers."""
        return cls(pa.uint32())

    @classmethod
    def uint64(cls) -> DataType:
        """Return the type of 64-bit unsigned integers."""
        return cls(pa.uint64())

    @classmethod
    def float32(cls) -> DataType:
        """Return the type of 32-bit floating-point numbers."""
        return cls(pa.float32())

    @classmethod
    def float64(cls) -> DataType:
        """Return the type of 64-bit floating-point numbers."""
        return cls(pa.float64())

    @classmethod
    def string(cls) -> DataType:
        """Return the type of text."""
        return cls(pa.string())

    @classmethod
    def bool(cls) -> DataType:
        """Return the type of booleans."""
        return cls(pa.bool_())

    @classmethod
    def binary(cls) -> DataType:
        """Return the type of bytes."""
        return cls(pa.binary())
