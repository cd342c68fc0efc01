"""Columns of tensors in pandas DataFrames."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skate.air import _optional
from skate.data._block import tensors
from skate.data._block.columns import as_ndarray, to_column

pandas = _optional.load("pandas", "TensorArray")
_extensions = _optional.load("pandas.api.extensions", "TensorArray")


@_extensions.register_extension_dtype
class TensorDtype(_extensions.ExtensionDtype):  # type: ignore[misc,name-defined]  # pandas has no type information
    """The pandas type of a column of tensors.

    Args:
        shape: Shape of a tensor, with None for dimensions that differ between tensors.
        dtype: NumPy dtype of the elements.

    Example:
        >>> TensorDtype((2, 3), np.dtype("int64"))
        TensorDtype(shape=(2, 3), dtype=int64)
    """

    def __init__(self, shape: Sequence[int | None], dtype: npt.DTypeLike) -> None:
        self._shape = tuple(shape)
        self._dtype = np.dtype(dtype)

    @property
    def element_shape(self) -> tuple[int | None, ...]:
        """The shape of a tensor."""
        return self._shape

    @property
    def element_dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of the elements."""
        return self._dtype

    @property
    def type(self) -> Any:
        """The Python type of a value."""
        return np.ndarray

    @property
    def name(self) -> str:
        """The name of the type, from which pandas can recreate it."""
        return repr(self)

    @classmethod
    def construct_array_type(cls) -> Any:
        """Return the type of a column."""
        return TensorArray

    @classmethod
    def construct_from_string(cls, string: str) -> TensorDtype:
        """Return the type that `name` describes."""
        if not isinstance(string, str):
            raise TypeError(f"the name must be a string, got {type(string).__qualname__}")
        match = re.fullmatch(r"TensorDtype\(shape=\((.*)\), dtype=(.*)\)", string)
        if match is None:
            raise TypeError(f"{string!r} is not the name of a TensorDtype")
        sides = [side.strip() for side in match[1].split(",") if side.strip()]
        return cls([None if side == "None" else int(side) for side in sides], match[2])

    def __from_arrow__(self, array: pa.Array | pa.ChunkedArray) -> TensorArray:
        chunked = array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
        return TensorArray([item for chunk in chunked.chunks for item in tensors.to_ndarray(chunk)])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return other == self.name
        return isinstance(other, TensorDtype) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"TensorDtype(shape={self._shape}, dtype={self._dtype})"


def _is_missing(item: Any) -> bool:
    return item is None or item is pandas.NA or (isinstance(item, float) and item != item)


class TensorArray(_extensions.ExtensionArray):  # type: ignore[misc,name-defined]  # pandas has no type information
    """A column of tensors in a pandas DataFrame.

    Args:
        values: An ndarray with one tensor per item, or a sequence of ndarrays of any shapes.

    Raises:
        TypeError: The values are of another type, or their elements are objects.

    Example:
        >>> frame = pandas.DataFrame({"x": TensorArray(np.arange(4).reshape(2, 2))})
        >>> frame["x"].iloc[1]
        array([2, 3])
    """

    def __init__(self, values: Any) -> None:
        if isinstance(values, TensorArray):
            values = values._items
        if not isinstance(values, np.ndarray | Sequence) and not hasattr(values, "__array__"):
            raise TypeError(
                f"TensorArray needs an ndarray or a sequence of them, got {type(values).__qualname__}"
            )
        items = [None if _is_missing(item) else as_ndarray(item) for item in values]
        if any(item is not None and item.dtype.kind == "O" for item in items):
            raise TypeError("TensorArray needs numbers, strings or times as elements, got Python objects")
        self._items: npt.NDArray[Any] = tensors.object_array(items)

    @classmethod
    def _from_sequence(cls, scalars: Any, *, dtype: Any = None, copy: bool = False) -> TensorArray:
        return cls(list(scalars))

    @classmethod
    def _from_factorized(cls, values: Any, original: Any) -> TensorArray:
        return cls(list(values))

    @classmethod
    def _concat_same_type(cls, to_concat: Sequence[TensorArray]) -> TensorArray:
        return cls([item for part in to_concat for item in part._items])

    @property
    def dtype(self) -> TensorDtype:
        """The type of the column."""
        present = [item for item in self._items if item is not None]
        if not present:
            return TensorDtype((), np.float64)
        dtype = np.result_type(*{item.dtype for item in present})
        shapes = {item.shape for item in present}
        if len(shapes) == 1:
            return TensorDtype(shapes.pop(), dtype)
        return TensorDtype((None,) * max(map(len, shapes)), dtype)

    @property
    def nbytes(self) -> int:
        """The size of the tensors in memory."""
        return sum(item.nbytes for item in self._items if item is not None)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, item: Any) -> Any:
        item = pandas.api.indexers.check_array_indexer(self, item)
        if isinstance(item, int | np.integer):
            return self._items[item]
        return TensorArray(list(self._items[item]))

    def __setitem__(self, key: Any, value: Any) -> None:
        key = pandas.api.indexers.check_array_indexer(self, key)
        if isinstance(key, int | np.integer):
            self._items[key] = None if value is None else as_ndarray(value)
        else:
            self._items[key] = TensorArray(value)._items

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, TensorArray) or len(other) != len(self):
            return NotImplemented
        return np.array([np.array_equal(a, b) for a, b in zip(self._items, other._items, strict=True)], bool)

    def isna(self) -> npt.NDArray[np.bool_]:
        """Return a mask of the missing tensors."""
        return np.array([item is None for item in self._items], dtype=bool)

    def copy(self) -> TensorArray:
        """Return a shallow copy, which shares the tensors."""
        return TensorArray(list(self._items))

    def take(self, indices: Any, allow_fill: bool = False, fill_value: Any = None) -> TensorArray:
        """Return the tensors at these positions; with `allow_fill`, -1 means `fill_value`."""
        positions = np.asarray(indices, dtype=np.intp)
        if not allow_fill:
            return TensorArray(list(self._items[positions]))
        if positions.size and (positions.min() < -1 or positions.max() >= len(self)):
            outside = "positions must be -1 or within the column"
            raise (IndexError if positions.min() >= -1 else ValueError)(
                f"{outside}, got {positions.tolist()}"
            )
        # Fill values of pandas, such as NaN, are not tensors.
        fill = fill_value if isinstance(fill_value, np.ndarray) else None
        return TensorArray([fill if position == -1 else self._items[position] for position in positions])

    def to_numpy(self, dtype: Any = None, copy: bool = False, na_value: Any = None) -> npt.NDArray[Any]:
        """Return one ndarray if all tensors have the same shape, else an ndarray of ndarrays."""
        shapes = {None if item is None else item.shape for item in self._items}
        if len(shapes) == 1 and None not in shapes:
            stacked = np.stack(list(self._items))
            return stacked if dtype is None else stacked.astype(dtype)
        return self._items.copy() if copy else self._items

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        # An object array, because pandas expects one dimension per column.
        return self._items.copy() if copy else self._items

    def __arrow_array__(self, type: Any = None) -> Any:
        return to_column(list(self._items), "")
