"""Functions of lists: `col("items").list`."""

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
    """The functions of lists.

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
        """Take an element, or a part, of each list."""
        if isinstance(key, builtins.slice):
            return self.slice(key.start, key.stop, key.step)
        if isinstance(key, bool) or not isinstance(key, (int, np.integer)):
            raise TypeError(f"List indices must be integers or slices, got {key!r}")
        return self.get(int(key))

    def get(self, index: int) -> PyArrowComputeUDFExpr:
        """Take the element at an index, counted from zero; every list has to have one."""
        return compute("list.get", pc.list_element, self._expr, positional=(index,))

    def slice(
        self, start: int | None = None, stop: int | None = None, step: int | None = None
    ) -> PyArrowComputeUDFExpr:
        """Take the elements from `start` up to, and without, `stop`, every `step`th one."""
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
            raise ValueError(f"list.sort: order must be 'ascending' or 'descending', got {order!r}")
        if null_placement not in ("at_start", "at_end"):
            raise ValueError(
                f"list.sort: null_placement must be 'at_start' or 'at_end', got {null_placement!r}"
            )
        return KernelExpr(_sorted, (self._expr,), method="list.sort", options=(order, null_placement))

    def flatten(self) -> KernelExpr:
        """Join the lists that each list holds into one."""
        return KernelExpr(_flattened, (self._expr,), method="list.flatten")


def plain_list(column: Any) -> pa.Array:
    """Return lists of any kind as a list or large list array whose values begin at its first element.

    Raises:
        pa.ArrowTypeError: They are no lists.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        raise pa.ArrowTypeError("only lists have elements")
    return array


def with_values(array: pa.Array, lengths: Numbers, values: pa.Array) -> pa.Array:
    """Return lists of given lengths, null where those of an array are, over given values."""
    large = pa.types.is_large_list(array.type)
    kind, offset_type = (pa.LargeListArray, pa.int64()) if large else (pa.ListArray, pa.int32())
    mask = pc.is_null(array) if array.null_count else None
    return kind.from_arrays(pa.array(_ends(lengths)).cast(offset_type), values, mask=mask)


def _sorted(column: Any, order: str, null_placement: str) -> pa.Array:
    array = plain_list(column)
    values = pc.list_flatten(array)
    # Counted, and not asked of Arrow, whose parent indices include what may stand under a null.
    row = np.repeat(np.arange(len(array)), lengths_of(array))
    # The rows are in order already: a sort by row and value keeps each list where it is. Nulls have a key of their
    # own, since where pyarrow puts those of one of several keys differs between its versions.
    elements = pa.table({"row": row, "missing": pc.is_null(values), "value": values})
    nulls = "descending" if null_placement == "at_start" else "ascending"
    chosen = pc.sort_indices(elements, sort_keys=[("row", "ascending"), ("missing", nulls), ("value", order)])
    return with_values(array, lengths_of(array), values.take(chosen))


def _flattened(column: Any) -> pa.Array:
    array = plain_list(column)
    inner = pc.list_flatten(array)
    if not (
        pa.types.is_list(inner.type)
        or pa.types.is_large_list(inner.type)
        or pa.types.is_fixed_size_list(inner.type)
    ):
        raise pa.ArrowTypeError("list.flatten() needs lists whose elements are lists")
    # The length of each new list is the sum of the lengths of those it joins.
    ends = _ends(lengths_of(inner))
    return with_values(array, np.diff(ends[_ends(lengths_of(array))]), pc.list_flatten(inner))


def lengths_of(lists: pa.Array) -> Numbers:
    """Return the length of each list, zero for a null."""
    found: Numbers = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return found


def _ends(lengths: Numbers) -> Numbers:
    """Return where each list ends in the values of all, after a zero for where the first begins."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


@checked_methods("index")
class StructNamespace:
    """The functions of records.

    >>> from skate.data.expressions import col
    >>> col("user").struct["name"]
    UDF(struct.field)
        └── arg[0]: COL('user')
    """

    def __init__(self, expr: Expr) -> None:
        self._expr = expr

    def __getitem__(self, key: str | int) -> PyArrowComputeUDFExpr:
        """Take a field by its name or position."""
        if isinstance(key, str):
            return self.field(key)
        if isinstance(key, bool) or not isinstance(key, (int, np.integer)):
            raise TypeError(f"Struct indices must be strings or integers, got {key!r}")
        return self.field_by_index(int(key))

    def field(self, field_name: str) -> PyArrowComputeUDFExpr:
        """Take a field by its name."""
        # A list is a path; a plain string would be parsed as one, and a name may hold a dot.
        return compute("struct.field", pc.struct_field, self._expr, positional=([field_name],))

    def field_by_index(self, index: int) -> PyArrowComputeUDFExpr:
        """Take a field by its position, counted from zero."""
        if isinstance(index, bool) or not isinstance(index, (int, np.integer)):
            raise TypeError(f"Struct field index must be an integer, got {index!r}")
        if index < 0:
            raise ValueError(f"Struct field index must be non-negative, got {index}")
        return compute("struct.field_by_index", pc.struct_field, self._expr, positional=([int(index)],))


class ArrayNamespace:
    """The functions of lists of one length, and of tensors.

    >>> from skate.data.expressions import col
    >>> col("features").arr.to_list()
    UDF(arr.to_list)
        └── arg[0]: COL('features')
    """

    def __init__(self, expr: Expr) -> None:
        self._expr = expr

    def to_list(self) -> KernelExpr:
        """Make plain lists of them; a tensor becomes the list of its elements, row by row."""
        return KernelExpr(_as_lists, (self._expr,), method="arr.to_list")


def _as_lists(column: Any) -> Any:
    if isinstance(column.type, pa.FixedShapeTensorType):
        column = column.cast(column.type.storage_type)
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return column
    if pa.types.is_fixed_size_list(column.type):
        return column.cast(pa.list_(column.type.value_field))
    raise pa.ArrowInvalid(f"to_list() can only be called on list-like columns, but got {column.type}")


class MapNamespace:
    """The functions of mappings: columns of Arrow's map type, or lists of records of a key and a value.

    >>> from skate.data.expressions import col
    >>> col("attributes").map.keys()
    UDF(map.keys)
        └── arg[0]: COL('attributes')
    """

    def __init__(self, expr: Expr) -> None:
        self._expr = expr

    def keys(self) -> KernelExpr:
        """Return the keys of each mapping, as a list."""
        return KernelExpr(_keys_or_values, (self._expr,), method="map.keys", options=(_KEYS,))

    def values(self) -> KernelExpr:
        """Return the values of each mapping, as a list."""
        return KernelExpr(_keys_or_values, (self._expr,), method="map.values", options=(_VALUES,))


def _keys_or_values(column: Any, position: int) -> pa.Array:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_map(array.type):
        array = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    is_list = pa.types.is_list(array.type) or pa.types.is_large_list(array.type)
    if not is_list or not pa.types.is_struct(array.type.value_type) or array.type.value_type.num_fields < 2:
        raise pa.ArrowTypeError(
            "only mappings, and lists of records of a key and a value, have keys and values"
        )
    entries = pc.list_flatten(array)  # without what stands under nulls, and before the first row of a slice
    return with_values(array, lengths_of(array), pc.struct_field(entries, position))
