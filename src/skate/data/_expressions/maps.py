"""Functions of mappings: `col("attributes").map`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from skate.data._expressions.calls import KernelExpr
from skate.data._expressions.lists import lengths_of, with_values

if TYPE_CHECKING:
    from skate.data._expressions.expr import Expr

_KEYS, _VALUES = 0, 1


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
        return KernelExpr(_part, (self._expr,), method="map.keys", options=(_KEYS,))

    def values(self) -> KernelExpr:
        """Return the values of each mapping, as a list."""
        return KernelExpr(_part, (self._expr,), method="map.values", options=(_VALUES,))


def _part(column: Any, position: int) -> pa.Array:
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
