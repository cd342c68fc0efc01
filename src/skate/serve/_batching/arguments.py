"""From the arguments of single calls to the lists that a batched function takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skate.serve._batching.calls import Call

Positional = tuple[Any, ...]
ByName = dict[str, Any]


class Parameters:
    """The parameters of a batched function, as a caller of one item sees them.

    Args:
        function: The batched function.
        is_method: Whether its first parameter is the object that it belongs to.
    """

    def __init__(self, function: Callable[..., Any], *, is_method: bool) -> None:
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())
        self._signature = signature.replace(parameters=parameters[1:] if is_method else parameters)
        self._name = getattr(function, "__qualname__", repr(function))
        self._fewest, self._most = _positional_range(self._signature)

    def normalise(self, args: Positional, kwargs: ByName) -> tuple[Positional, ByName]:
        """Return the arguments with everything by position that can be, so that equal calls look equal.

        Raises:
            TypeError: If the function cannot be called with them.
        """
        if not kwargs and self._fewest <= len(args) <= self._most:
            return args, kwargs
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._name}(): {error}") from None
        return bound.args, bound.kwargs


def stacked(calls: Sequence[Call]) -> tuple[list[list[Any]], dict[str, list[Any]]]:
    """Return one list for each parameter that the calls give; they have to give the same ones."""
    first = calls[0]
    if len(first.args) == 1 and not first.kwargs:
        return [[call.args[0] for call in calls]], {}
    columns = [list(column) for column in zip(*(call.args for call in calls), strict=True)]
    return columns, {name: [call.kwargs[name] for call in calls] for name in first.kwargs}


def item(call: Call) -> Any:
    """Return what stands for a call where its size is measured: its first argument."""
    return call.args[0] if call.args else next(iter(call.kwargs.values()), None)


def _positional_range(signature: inspect.Signature) -> tuple[int, float]:
    """Return how few and how many arguments by position make a complete call."""
    fewest, most = 0, 0.0
    for parameter in signature.parameters.values():
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                most = float("inf")
            case inspect.Parameter.POSITIONAL_ONLY | inspect.Parameter.POSITIONAL_OR_KEYWORD:
                most += 1
                fewest += parameter.default is inspect.Parameter.empty
            case inspect.Parameter.KEYWORD_ONLY if parameter.default is inspect.Parameter.empty:
                return 0, -1  # a call needs this one by name: none is complete without
    return fewest, most
