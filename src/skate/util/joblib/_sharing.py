"""Send large arguments that many calls share only once.

The calls of one `joblib.Parallel` often take the same array: the training data. It is put into shared memory on
first use, and every process reads it without a copy, as joblib itself does with memory-mapped files. The array is
then read-only, as it is with joblib.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import skate


class Shared:
    """A placeholder for a large argument in a call."""

    __slots__ = ("ref",)

    def __init__(self, ref: skate.ObjectRef[Any]) -> None:
        self.ref = ref

    def __reduce__(self) -> tuple[Any, ...]:
        return Shared, (self.ref,)


class SharedArguments:
    """The large arguments that were sent and still exist in the program.

    Args:
        smallest: Minimum size of a large argument, in bytes.
    """

    def __init__(self, smallest: int) -> None:
        self._smallest = smallest
        self._known: dict[int, tuple[weakref.ref[Any], Shared]] = {}

    def replace(self, call: tuple[Callable[..., Any], Any, Any]) -> tuple[Callable[..., Any], Any, Any]:
        """Return the call with large arguments replaced by placeholders."""
        function, args, kwargs = call
        sent_args = [self._replace_value(value) for value in args]
        sent_kwargs = {name: self._replace_value(value) for name, value in kwargs.items()}
        if any(isinstance(value, Shared) for value in (*sent_args, *sent_kwargs.values())):
            return run_with_shared, (function, sent_args, sent_kwargs), {}
        return call

    def _replace_value(self, value: Any) -> Any:
        if size_of(value) < self._smallest:
            return value
        key = id(value)
        known = self._known.get(key)
        if known is not None and known[0]() is value:
            return known[1]
        try:
            # Once the program drops the array, it cannot be sent again, so release the copy.
            watch = weakref.ref(value, lambda _: self._known.pop(key, None))
        except TypeError:
            return value
        shared = Shared(skate.put(value))
        self._known[key] = watch, shared
        return shared


def run_with_shared(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call the function with the arguments that the placeholders refer to."""
    shared = [value for value in (*args, *kwargs.values()) if isinstance(value, Shared)]
    values = iter(skate.get([each.ref for each in shared]))
    args = [next(values) if isinstance(value, Shared) else value for value in args]
    kwargs = {name: next(values) if isinstance(value, Shared) else value for name, value in kwargs.items()}
    return function(*args, **kwargs)


def size_of(value: Any) -> int:
    """Return the size of an array, table or sparse matrix in bytes, and 0 for other values."""
    if type(value).__module__ == "builtins":  # fast path for most arguments
        return 0
    size = getattr(value, "nbytes", None)  # NumPy, Arrow, torch
    if size is None and hasattr(value, "memory_usage"):  # pandas
        size = value.memory_usage(deep=False)
        size = size.sum() if hasattr(size, "sum") else size
    if size is None and hasattr(value, "data"):  # scipy.sparse
        size = getattr(value.data, "nbytes", None)
    try:
        return int(size or 0)
    except (TypeError, ValueError):
        return 0  # an attribute of the same name with another meaning
