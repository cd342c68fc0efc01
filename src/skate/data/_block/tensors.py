"""Columns of tensors: of one shape as Arrow's own type, or of different shapes as an extension type of Skate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# Arrow has four units of time; NumPy's coarser units fit into seconds, its finer ones lose only precision beyond
# nanoseconds.
_UNITS = {"Y": "s", "M": "s", "W": "s", "D": "s", "h": "s", "m": "s", "ps": "ns", "fs": "ns", "as": "ns"}


class VariableShapedTensorScalar(pa.ExtensionScalar):  # type: ignore[misc]  # pyarrow has no type information
    """One tensor in a column of tensors of different shapes."""

    def as_py(self, **kwargs: Any) -> npt.NDArray[Any] | None:
        """Return the tensor as an ndarray."""
        if self.value is None:
            return None
        flat = self.value["data"].values
        return values_to_numpy(flat).reshape(self.value["shape"].as_py())


class VariableShapedTensorArray(pa.ExtensionArray):  # type: ignore[misc]  # pyarrow has no type information
    """A column of tensors of different shapes."""

    def to_ndarrays(self) -> list[npt.NDArray[Any] | None]:
        """Return the tensors, as views where the layout allows, with None for null."""
        if len(self) == 0:
            return []
        data = self.storage.field("data")
        bounds = data.offsets.to_numpy()
        first = int(bounds[0])
        # A slice refers to all elements of its parent: use only those within its bounds.
        flat = values_to_numpy(data.values.slice(first, int(bounds[-1]) - first))
        starts = (bounds - first).tolist()
        shapes = self.storage.field("shape").to_pylist()
        if self.null_count == 0:
            return [flat[starts[i] : starts[i + 1]].reshape(shapes[i]) for i in range(len(self))]
        valid = self.is_valid().to_pylist()
        return [
            flat[starts[i] : starts[i + 1]].reshape(shapes[i]) if valid[i] else None for i in range(len(self))
        ]

    def to_pylist(self, **kwargs: Any) -> list[npt.NDArray[Any] | None]:
        """Return the tensors as ndarrays, with None for null."""
        return self.to_ndarrays()

    def to_numpy(self, zero_copy_only: bool = False, **kwargs: Any) -> npt.NDArray[Any]:
        """Return the tensors as an ndarray of ndarrays."""
        return object_array(self.to_ndarrays())

    @classmethod
    def from_numpy(cls, arrays: Sequence[npt.NDArray[Any]]) -> VariableShapedTensorArray:
        """Create a column of tensors of any shapes.

        Raises:
            ValueError: The sequence is empty, or the elements have no Arrow type.
        """
        if not isinstance(arrays, Sequence | np.ndarray) or len(arrays) == 0:
            raise ValueError(f"from_numpy takes a sequence of at least one ndarray, got {arrays!r}")
        column: VariableShapedTensorArray = from_variable_shapes([np.asarray(array) for array in arrays])
        return column


class VariableShapedTensorType(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no type information
    """The Arrow type of a column of tensors of different shapes.

    Args:
        value_type: The Arrow type of an element.
        ndim: Number of dimensions; None if it differs between tensors.

    Example:
        >>> VariableShapedTensorType(pa.float32(), 2).shape
        (None, None)
    """

    def __init__(self, value_type: pa.DataType, ndim: int | None) -> None:
        self._ndim = ndim
        # 64-bit offsets, because images reach 2 GiB even in blocks of moderate size.
        storage = pa.struct([("data", pa.large_list(value_type)), ("shape", pa.list_(pa.int64()))])
        super().__init__(storage, "skate.variable_shaped_tensor")

    @property
    def value_type(self) -> pa.DataType:
        """The Arrow type of an element."""
        return self.storage_type.field("data").type.value_type

    @property
    def ndim(self) -> int | None:
        """The number of dimensions; None if it differs between tensors."""
        return self._ndim

    @property
    def shape(self) -> tuple[None, ...] | None:
        """A tuple of None for each dimension; None if the number of dimensions differs."""
        return None if self._ndim is None else (None,) * self._ndim

    def __arrow_ext_serialize__(self) -> bytes:
        return json.dumps({"ndim": self._ndim}).encode()

    @classmethod
    def __arrow_ext_deserialize__(
        cls, storage_type: pa.DataType, serialized: bytes
    ) -> VariableShapedTensorType:
        # The bytes come from files: a type that does not match the storage would crash the process.
        if not pa.types.is_struct(storage_type) or {field.name for field in storage_type} != {
            "data",
            "shape",
        }:
            raise ValueError(f"the storage of a tensor column has data and shapes, not {storage_type}")
        elements = storage_type.field("data").type
        ndim = json.loads(serialized)["ndim"]
        if not pa.types.is_large_list(elements) or not (ndim is None or type(ndim) is int):
            raise ValueError(
                f"the storage of a tensor column has lists of elements and a rank, not {elements} and {ndim!r}"
            )
        made = cls(elements.value_type, ndim)
        if made.storage_type != storage_type:
            raise ValueError(f"the storage of a tensor column is {made.storage_type}, not as {storage_type}")
        return made

    def __arrow_ext_class__(self) -> type:
        return VariableShapedTensorArray

    def __arrow_ext_scalar_class__(self) -> type:
        return VariableShapedTensorScalar

    def __reduce__(self) -> tuple[Any, ...]:
        return VariableShapedTensorType, (self.value_type, self._ndim)

    def __hash__(self) -> int:
        return hash((self.extension_name, self.value_type, self._ndim))

    def __str__(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        return f"VariableShapedTensorType(ndim={self._ndim}, dtype={self.value_type})"


pa.register_extension_type(VariableShapedTensorType(pa.float64(), None))


def is_tensor(type_: pa.DataType) -> bool:
    """Return whether a column of this type holds tensors."""
    return isinstance(type_, pa.FixedShapeTensorType | VariableShapedTensorType)


def flat_values(array: npt.NDArray[Any]) -> pa.Array:
    """Return the elements of an ndarray in C order as an Arrow array, without a copy where possible.

    Raises:
        pyarrow.ArrowException: The elements have no Arrow type: complex numbers, records, objects.
    """
    dtype = array.dtype
    if dtype.kind in "mM":
        unit = np.datetime_data(dtype)[0]
        if unit in _UNITS:
            array = array.astype(f"{dtype.kind}8[{_UNITS[unit]}]")
    elif dtype.kind == "O":
        raise pa.ArrowNotImplementedError("a tensor of Python objects")
    elif not dtype.isnative:
        array = array.astype(dtype.newbyteorder("="))
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind in "iuf" and flat.dtype.isnative:
        # The same as `pa.array`, which would import pandas.
        return pa.Array.from_buffers(
            pa.from_numpy_dtype(flat.dtype), len(flat), [None, pa.py_buffer(flat)], null_count=0
        )
    return pa.array(flat)


def values_to_numpy(values: pa.Array) -> npt.NDArray[Any]:
    """Return elements as a one-dimensional ndarray, as a view where the layout allows."""
    array: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    if is_text and values.null_count == 0:
        return array.astype(np.str_)  # the dtype of the original array of strings
    return array


def fixed_shape_column(values: pa.Array, shape: Sequence[int], length: int) -> pa.Array:
    """Create a column of tensors of one shape from their elements, without a copy."""
    size = int(np.prod(shape, dtype=np.int64))
    # `from_arrays` cannot infer the number of empty lists from an empty array.
    lists = pa.Array.from_buffers(pa.list_(values.type, size), length, [None], children=[values])
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(values.type, list(shape)), lists)


def from_ndarray(array: npt.NDArray[Any]) -> pa.Array:
    """Create a column of tensors, one per item along the first axis.

    Raises:
        pyarrow.ArrowException: The elements have no Arrow type.
    """
    return fixed_shape_column(flat_values(array), array.shape[1:], len(array))


def from_ndarrays(arrays: Sequence[npt.NDArray[Any] | None]) -> pa.Array:
    """Create a column of tensors; None becomes null, and shapes may differ.

    Raises:
        pyarrow.ArrowException: The elements have no Arrow type.
    """
    present = [array for array in arrays if array is not None]
    has_nulls = len(present) < len(arrays)
    shapes = {array.shape for array in present}
    if shapes == {()}:  # scalars, each in an array
        column = flat_values(np.array(present))
    elif len(shapes) == 1 and present[0].size:
        column = from_ndarray(_stack(present))
    else:  # also tensors without elements: Parquet cannot read lists of size 0
        return from_variable_shapes(arrays)
    return _with_nulls(arrays, column) if has_nulls else column


def _stack(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    # `np.stack` has a high overhead per array.
    return np.concatenate(arrays).reshape(len(arrays), *arrays[0].shape)


def _with_nulls(arrays: Sequence[npt.NDArray[Any] | None], present: pa.Array) -> pa.Array:
    numbers = iter(range(len(present)))
    return present.take(pa.array([None if array is None else next(numbers) for array in arrays], pa.int64()))


def from_variable_shapes(arrays: Sequence[npt.NDArray[Any] | None]) -> Any:
    """Create a column of tensors of any shapes, at least one of which is not None."""
    present = [array for array in arrays if array is not None]
    ndims = {array.ndim for array in present}
    dtype = np.result_type(*{array.dtype for array in present})
    flat = flat_values(np.concatenate([array.astype(dtype, copy=False).reshape(-1) for array in present]))
    sizes = [0 if array is None else array.size for array in arrays]
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]))
    data = pa.LargeListArray.from_arrays(offsets, flat)
    shape = pa.array([None if array is None else array.shape for array in arrays], pa.list_(pa.int64()))
    mask = pa.array([array is None for array in arrays]) if len(present) < len(arrays) else None
    storage = pa.StructArray.from_arrays([data, shape], names=["data", "shape"], mask=mask)
    type_ = VariableShapedTensorType(flat.type, ndims.pop() if len(ndims) == 1 else None)
    return pa.ExtensionArray.from_storage(type_, storage)


def to_ndarray(column: pa.Array) -> npt.NDArray[Any]:
    """Convert a column of tensors to one ndarray.

    Tensors of one shape become one ndarray with an additional axis, as a view where the layout allows; tensors of
    different shapes, or with nulls, become an ndarray of objects.
    """
    if isinstance(column.type, VariableShapedTensorType):
        return object_array(column.to_ndarrays())
    if column.null_count:
        valid = column.is_valid()
        tensors = iter(to_ndarray(column.filter(valid)))
        return object_array([next(tensors) if present else None for present in valid.to_pylist()])
    return _fixed_shape_to_ndarray(column)


def _fixed_shape_to_ndarray(column: pa.Array) -> npt.NDArray[Any]:
    type_ = column.type
    storage, permutation = column.storage, type_.permutation
    size = storage.type.list_size
    # Equals `storage.flatten()` where there are no nulls, at a third of its cost for a small batch.
    flat = values_to_numpy(storage.values.slice(storage.offset * size, len(storage) * size))
    tensors = flat.reshape([len(column), *type_.shape])
    if permutation is None:
        return tensors
    return tensors.transpose([0, *(axis + 1 for axis in permutation)])


def object_array(values: Sequence[Any]) -> npt.NDArray[Any]:
    """Return a one-dimensional ndarray of dtype object."""
    # `np.array` would nest into sequences of equal length.
    return np.fromiter(values, dtype=object, count=len(values))
