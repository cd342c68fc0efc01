"""Send a large argument that many calls share only once.

The calls of one `joblib.Parallel` often get the same array: the training data. It is put into shared
memory the first time, and every process reads it from there without a copy, as joblib itself does with
memory-mapped files. Like there, the array is then read-only.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import skate


class Shared:
    """Stands for a large argument in a call that is sent."""

    __slots__ = ("ref",)

    def __init__(self, ref: skate.ObjectRef[Any]) -> None:
        self.ref = ref

    def __reduce__(self) -> tuple[Any, ...]:
        return Shared, (self.ref,)


class SharedArguments:
    """The large arguments that were sent, as long as the program still holds them.

    Args:
        smallest: How many bytes make an argument large.
    """

    def __init__(self, smallest: int) -> None:
        self._smallest = smallest
        self._known: dict[int, tuple[weakref.ref[Any], Shared]] = {}

    def replace(self, call: tuple[Callable[..., Any], Any, Any]) -> tuple[Callable[..., Any], Any, Any]:
        """Return the call with its large arguments replaced."""
        function, args, kwargs = call
        sent_args = [self._replaced(value) for value in args]
        sent_kwargs = {name: self._replaced(value) for name, value in kwargs.items()}
        if any(isinstance(value, Shared) for value in (*sent_args, *sent_kwargs.values())):
            return run_with_shared, (function, sent_args, sent_kwargs), {}
        return call

    def _replaced(self, value: Any) -> Any:
        if size_of(value) < self._smallest:
            return value
        key = id(value)
        known = self._known.get(key)
        if known is not None and known[0]() is value:
            return known[1]
        try:
            # Once the program drops the array, nobody can send it again: the copy may go too.
            watch = weakref.ref(value, lambda _: self._known.pop(key, None))
        except TypeError:
            return value
        shared = Shared(skate.put(value))
        self._known[key] = watch, shared
        return shared


def run_with_shared(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call the function with the arguments that stand-ins stand for."""
    shared = [value for value in (*args, *kwargs.values()) if isinstance(value, Shared)]
    values = iter(skate.get([each.ref for each in shared]))
    args = [next(values) if isinstance(value, Shared) else value for value in args]
    kwargs = {name: next(values) if isinstance(value, Shared) else value for name, value in kwargs.items()}
    return function(*args, **kwargs)


def size_of(value: Any) -> int:
    """Return the bytes that an array, table or sparse matrix takes, and 0 for anything else."""
    if type(value).__module__ == "builtins":  # Most arguments: let them pass quickly.
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
        return 0  # An attribute of the same name that means something else.
