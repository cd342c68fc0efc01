"""The `@remote` decorator."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, overload

from skate._base.options import ActorOptions
from skate.actor import ActorClass
from skate.remote_function import RemoteFunction

T = TypeVar("T")
R = TypeVar("R")


@overload
def remote(target: type[T], /) -> ActorClass[T]: ...  # type: ignore[overload-overlap]
@overload
def remote(target: Callable[..., R], /) -> RemoteFunction[..., R]: ...
@overload
def remote(**options: Any) -> Any: ...
def remote(*args: Any, **options: Any) -> Any:
    """Make a function a remote function, or a class an actor class.

    Use it without parentheses, or with options: `@skate.remote(num_cpus=2)`.

    >>> import skate
    >>> @skate.remote
    ... def double(x):
    ...     return 2 * x
    >>> skate.get(double.remote(21))
    42
    """
    if len(args) == 1 and not options and callable(args[0]):
        return make(args[0], {})
    if args or not options:
        raise TypeError(
            "Write @remote without parentheses, or give it options by keyword, as in @remote(num_cpus=2)."
            + (f" Got {args[0]!r} ({type(args[0]).__name__})." if args else "")
        )
    return lambda target: make(target, options)


def make(target: Any, options: dict[str, Any]) -> Any:
    """Return the remote function or actor class for `target`."""
    if isinstance(target, (RemoteFunction, ActorClass)):
        raise TypeError(f"{target!r} is remote already: use .options(…) to change its options.")
    if inspect.isfunction(target) or _is_builtin(target):
        return RemoteFunction(target, options)
    if inspect.isclass(target):
        return ActorClass(target, ActorOptions.parse(options))
    raise TypeError(f"@remote decorates a function or a class, not {target!r} ({type(target).__name__}).")


def _is_builtin(target: Any) -> bool:
    return inspect.isbuiltin(target) or type(target).__name__ == "cython_function_or_method"
