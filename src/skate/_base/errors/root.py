"""The base class of all errors of Skate, and their pickling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PUBLIC_MODULE = "skate.exceptions"


class RayError(Exception):
    """The base of all errors that Skate itself raises, so that one ``except`` catches them all."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Tracebacks and pickles use the public module of a class, not its private one.
        if cls.__module__.startswith(__package__):
            cls.__module__ = PUBLIC_MODULE

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # Exception's own reduce calls the constructor with `args` alone, which loses keyword fields and
        # fails for constructors with more parameters.
        return restore, (type(self), self.args, self.__getstate__())


RayError.__module__ = PUBLIC_MODULE


def restore(cls: type[BaseException], args: tuple[Any, ...], state: Any) -> BaseException:
    """Rebuild an error from its class, ``args`` and fields without running its constructor."""
    error = cls.__new__(cls, *args)
    error.args = args
    fields, slots = state if isinstance(state, tuple) else (state, None)
    if fields:
        error.__dict__.update(fields)
    for name, value in (slots or {}).items():
        setattr(error, name, value)
    return error
