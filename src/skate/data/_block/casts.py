"""Cast columns to another type, including casts that Arrow does not support."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyarrow import types as is_

from skate.data._block import objects, tensors, values
from skate.data._block.errors import ColumnCastError
from skate.data._block.kinds import is_list
from skate.data._block.objects import PythonObjectType
from skate.data._block.tensors import VariableShapedTensorType


def cast(column: pa.ChunkedArray, type_: pa.DataType, name: str) -> pa.ChunkedArray:
    """Cast a column; return it unchanged if it already has the type.

    Raises:
        ColumnCastError: A value does not fit.
    """
    if column.type == type_:
        return column
    try:
        return pa.chunked_array([_cast(chunk, type_) for chunk in column.chunks], type_)
    except (pa.ArrowException, OverflowError) as error:
        raise ColumnCastError(name, str(column.type), str(type_), str(error)) from error


def _cast(chunk: pa.Array, type_: pa.DataType) -> pa.Array:
    if chunk.type == type_:
        return chunk
    if is_.is_null(chunk.type):
        return pa.nulls(len(chunk), type_)
    if isinstance(type_, PythonObjectType):
        return objects.from_objects(values.to_list(chunk))
    if isinstance(type_, VariableShapedTensorType):
        return _to_variable_shape(chunk, type_)
    if isinstance(type_, pa.FixedShapeTensorType):
        return pa.ExtensionArray.from_storage(type_, chunk.storage.cast(type_.storage_type))
    if is_.is_struct(type_) and is_.is_struct(chunk.type):
        return _cast_struct(chunk, type_)
    if is_list(type_) and is_list(chunk.type):
        return _cast_list(chunk, type_)
    if is_.is_dictionary(type_) and not is_.is_dictionary(chunk.type):
        return chunk.cast(type_.value_type).dictionary_encode().cast(type_)
    return chunk.cast(type_)


def _to_variable_shape(chunk: pa.Array, type_: VariableShapedTensorType) -> pa.Array:
    if isinstance(chunk.type, VariableShapedTensorType):
        return pa.ExtensionArray.from_storage(type_, chunk.storage.cast(type_.storage_type))
    if chunk.type.permutation is not None:
        listed = [None if tensor is None else np.asarray(tensor) for tensor in tensors.to_ndarray(chunk)]
        return _to_variable_shape(tensors.from_variable_shapes(listed), type_)
    # The elements are already contiguous: only offsets and shapes are new.
    shape = list(chunk.type.shape)
    size = chunk.storage.type.list_size
    length = len(chunk)
    elements = chunk.storage.values.slice(chunk.offset * size, length * size)
    bounds = pa.array(np.arange(length + 1, dtype=np.int64) * size)
    data = pa.LargeListArray.from_arrays(bounds, elements.cast(type_.value_type))
    ranks = pa.array(np.arange(length + 1, dtype=np.int32) * len(shape))
    shapes = pa.ListArray.from_arrays(ranks, pa.array(np.tile(np.array(shape, dtype=np.int64), length)))
    mask = chunk.is_null() if chunk.null_count else None
    storage = pa.StructArray.from_arrays([data, shapes], names=["data", "shape"], mask=mask)
    return pa.ExtensionArray.from_storage(type_, storage)


def _cast_struct(chunk: pa.Array, type_: pa.DataType) -> pa.Array:
    # Arrow's cast needs the same fields in the same order, and does not support Skate's extension types.
    children = []
    for field in type_:
        index = chunk.type.get_field_index(field.name)
        if index < 0:
            children.append(pa.nulls(len(chunk), field.type))
        else:
            children.append(_cast(chunk.field(index), field.type))
    mask = chunk.is_null() if chunk.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)


def _cast_list(chunk: pa.Array, type_: pa.DataType) -> pa.Array:
    if is_.is_fixed_size_list(chunk.type):
        chunk = chunk.cast(pa.list_(chunk.type.value_field))
    if is_.is_fixed_size_list(type_):
        return chunk.cast(type_)
    kind = pa.LargeListArray if is_.is_large_list(type_) else pa.ListArray
    if len(chunk) == 0:
        return pa.array([], type_)
    bounds = chunk.offsets
    first = bounds[0].as_py()
    items = _cast(chunk.values.slice(first, bounds[-1].as_py() - first), type_.value_type)
    starts = pa.array(bounds.to_numpy() - first, pa.int64() if kind is pa.LargeListArray else pa.int32())
    return kind.from_arrays(starts, items, type=type_, mask=chunk.is_null() if chunk.null_count else None)
