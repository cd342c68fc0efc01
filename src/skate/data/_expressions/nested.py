"""Functions of nested values: `col("items").list`, `.struct`, `.arr` and `.map`."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skate.data._arguments import checked_methods
from skate.data._expressions.calls import KernelExpr, PyArrowComputeUDFExpr, compute
from skate.data._expressions.expr import UNKNOWN
from skate.data.datatype import DataType

if TYPE_CHECKING:
    from collections.abc import Callable

    from skate.data._expressions.expr import Expr
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skate.data._expressions.expr import Expr
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skate.data._expressions.expr import Expr
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skate.data._expressions.expr import Expr

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
_KEYS, _VALUES = 0, 1


@checked_methods("order", "null_placement")
class ListNamespace:
    """Functions of lists.

    >>> from skate.data.expressions import col
    >>> col("items").list[0]
    UDF(list.get)
        └── arg[0]: COL('items')
    """

    def __init__(self, expr: Expr) -> None:
        self._expr = expr

    def _call(
        self, method: str, function: Callable[..., Any], *, returns: DataType = UNKNOWN, **options: Any
    ) -> PyArrowComputeUDFExpr:
        return compute(f"list.{method}", function, self._expr, returns=returns, **options)

    def len(self) -> PyArrowComputeUDFExpr:
        """Count the elements."""
        return self._call("len", pc.list_value_length, returns=DataType(pa.int32()))

    def __getitem__(self, key: int | np.integer[Any] | builtins.slice) -> PyArrowComputeUDFExpr:
        """Select an element or a slice of each list."""
        if isinstance(key, builtins.slice):
            return self.slice(key.start, key.stop, key.step)
        if isinstance(key, bool) or not isinstance(key, (int, np.integer)):
            raise TypeError(f"List indices must be integers or slices, got {key!r}")
        return self.get(int(key))

    def get(self, index: int) -> PyArrowComputeUDFExpr:
        """Select the element at an index, from zero; every list must be long enough."""
        return compute("list.get", pc.list_element, self._expr, positional=(index,))

    def slice(
        self, start: int | None = None, stop: int | None = None, step: int | None = None
    ) -> PyArrowComputeUDFExpr:
        """Select the elements from `start` to `stop`, exclusive, with a step of `step`."""
        return self._call(
            "slice", pc.list_slice, start=start or 0, stop=stop, step=1 if step is None else step
        )

    def sort(
        self,
        order: Literal["ascending", "descending"] = "ascending",
        null_placement: Literal["at_start", "at_end"] = "at_end",
    ) -> KernelExpr:
        """Sort the elements of each list."""
        if order not in ("ascending", "descending"):
            raise ValueError(f"list.sort: order is 'ascending' or 'descending', not {order!r}")
        if null_placement not in ("at_start", "at_end"):
            raise ValueError(f"list.sort: null_placement is 'at_start' or 'at_end', not {null_placement!r}")
        return KernelExpr(_sort, (self._expr,), method="list.sort", options=(order, null_placement))

    def flatten(self) -> KernelExpr:
        """Flatten lists of lists by one level."""
        return KernelExpr(_flatten, (self._expr,), method="list.flatten")


def plain_list(column: Any) -> pa.Array:
    """Return lists of any kind as a list or large list array whose values start at its first element.

    Raises:
        pa.ArrowTypeError: The column does not hold lists.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        raise pa.ArrowTypeError("only lists have elements")
    return array


def with_values(array: pa.Array, lengths: Numbers, values: pa.Array) -> pa.Array:
    """Return lists of the given lengths over the given values, with the nulls of an array."""
    large = pa.types.is_large_list(array.type)
    kind, offset_type = (pa.LargeListArray, pa.int64()) if large else (pa.ListArray, pa.int32())
    mask = pc.is_null(array) if array.null_count else None
    return kind.from_arrays(pa.array(_offsets(lengths)).cast(offset_type), values, mask=mask)


def _sort(column: Any, order: str, null_placement: str) -> pa.Array:
    array = plain_list(column)
    values = pc.list_flatten(array)
    # Arrow's parent indices would include values under a null, so compute them from the lengths.
    row = np.repeat(np.arange(len(array)), lengths_of(array))
    # The rows are already in order, so a sort by row and value sorts each list in place. Nulls have a separate key,
    # because their placement with several keys differs between versions of pyarrow.
    elements = pa.table({"row": row, "missing": pc.is_null(values), "value": values})
    nulls = "descending" if null_placement == "at_start" else "ascending"
    chosen = pc.sort_indices(elements, sort_keys=[("row", "ascending"), ("missing", nulls), ("value", order)])
    return with_values(array, lengths_of(array), values.take(chosen))


def _flatten(column: Any) -> pa.Array:
    array = plain_list(column)
    inner = pc.list_flatten(array)
    if not (
        pa.types.is_list(inner.type)
        or pa.types.is_large_list(inner.type)
        or pa.types.is_fixed_size_list(inner.type)
    ):
        raise pa.ArrowTypeError("list.flatten() needs lists whose elements are lists")
    # The length of each new list is the sum of the lengths of the lists that it combines.
    ends = _offsets(lengths_of(inner))
    return with_values(array, np.diff(ends[_offsets(lengths_of(array))]), pc.list_flatten(inner))


def lengths_of(lists: pa.Array) -> Numbers:
    """Return the length of each list, zero for null."""
    found: Numbers = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return found


def _offsets(lengths: Numbers) -> Numbers:
    """Return the offsets of the lists in the combined values, starting with zero."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


@checked_methods("index")
class StructNamespace:
    """Functions of structs.

    >>> from skate.data.expressions import col
    >>> col("user").struct["name"]
    UDF(struct.field)
        └── arg[0]: COL('user')
    """

    def __init__(self, expr: Expr) -> None:
        self._expr = expr

    def __getitem__(self, key: str | int) -> PyArrowComputeUDFExpr:
        """Select a field by its name or position."""
        if isinstance(key, str):
            return self.field(key)
        if isinstance(key, bool) or not isinstance(key, (int, np.integer)):
            raise TypeError(f"Struct indices must be strings or integers, got {key!r}")
        return self.field_by_index(int(key))

    def field(self, field_name: str) -> PyArrowComputeUDFExpr:
        """Select a field by its name."""
        # A list is a path; a string would be parsed as one, and a name may contain a dot.
        return compute("struct.field", pc.struct_field, self._expr, positional=([field_name],))

    def field_by_index(self, index: int) -> PyArrowComputeUDFExpr:
        """Select a field by its position, from zero."""
        if isinstance(index, bool) or not isinstance(index, (int, np.integer)):
            raise TypeError(f"Struct field index must be an integer, got {index!r}")
        if index < 0:
            raise ValueError(f"field_by_index counts from 0: the index {index} is negative")
        return compute("struct.field_by_index", pc.struct_field, self._expr, positional=([int(index)],))


class ArrayNamespace:
    """Functions of fixed-size lists and tensors.

    >>> from skate.data.expressions import col
    >>> col("features").arr.to_list()
    UDF(arr.to_list)
        └── arg[0]: COL('features')
    """

    def __init__(self, expr: Expr) -> None:
        self._expr = expr

    def to_list(self) -> KernelExpr:
        """Convert to plain lists; a tensor becomes the list of its elements in row-major order."""
        return KernelExpr(_as_lists, (self._expr,), method="arr.to_list")


def _as_lists(column: Any) -> Any:
    if isinstance(column.type, pa.FixedShapeTensorType):
        column = column.cast(column.type.storage_type)
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return column
    if pa.types.is_fixed_size_list(column.type):
        return column.cast(pa.list_(column.type.value_field))
    raise pa.ArrowInvalid(
        f"to_list() can only be called on list-like columns: this one has type {column.type}"
    )


class MapNamespace:
    """Functions of maps: columns of Arrow's map type, or lists of key-value structs.

    >>> from skate.data.expressions import col
    >>> col("attributes").map.keys()
    UDF(map.keys)
        └── arg[0]: COL('attributes')
    """

    def __init__(self, expr: Expr) -> None:
        self._expr = expr

    def keys(self) -> KernelExpr:
        """Return the keys of each map as a list."""
        return KernelExpr(_keys_or_values, (self._expr,), method="map.keys", options=(_KEYS,))

    def values(self) -> KernelExpr:
        """Return the values of each map as a list."""
        return KernelExpr(_keys_or_values, (self._expr,), method="map.values", options=(_VALUES,))


def _keys_or_values(column: Any, position: int) -> pa.Array:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_map(array.type):
        array = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    is_list = pa.types.is_list(array.type) or pa.types.is_large_list(array.type)
    if not is_list or not pa.types.is_struct(array.type.value_type) or array.type.value_type.num_fields < 2:
        raise pa.ArrowTypeError("only maps, and lists of key-value structs, have keys and values")
    entries = pc.list_flatten(array)  # without values under nulls and before the slice
    return with_values(array, lengths_of(array), pc.struct_field(entries, position))
