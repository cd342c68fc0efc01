"""Decorators that declare the stability of APIs."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Literal, TypeVar, get_args, overload

__all__ = ["AnnotationType", "Deprecated", "DeveloperAPI", "PublicAPI", "RayDeprecationWarning"]

T = TypeVar("T", bound=Callable[..., Any])
Stability = Literal["stable", "beta", "alpha"]

_OTHERS: Final = "Others"
_DEPRECATED: Final = "This API is deprecated: a later version may lack it."
_SILENCE: Final = 'Set PYTHONWARNINGS="ignore::DeprecationWarning" to silence this.'


class AnnotationType(Enum):
    """The declared kind of an API."""

    PUBLIC_API = "PublicAPI"
    DEVELOPER_API = "DeveloperAPI"
    DEPRECATED = "Deprecated"
    UNKNOWN = "Unknown"


class RayDeprecationWarning(DeprecationWarning):
    """Warn that a deprecated API is used."""


@overload
def PublicAPI(obj: T) -> T: ...


@overload
def PublicAPI(*, stability: Stability = ..., api_group: str = ...) -> Callable[[T], T]: ...


def PublicAPI(  # noqa: N802 (Ray's name)
    obj: T | None = None, *, stability: Stability = "stable", api_group: str = _OTHERS
) -> T | Callable[[T], T]:
    """Declare a class or function as public API.

    Args:
        obj: The decorated object, if the decorator is used without parentheses.
        stability: ``stable`` (the default), ``beta`` or ``alpha``.
        api_group: Heading in the documentation.

    Raises:
        ValueError: If `stability` has another value.

    Example:
        >>> @PublicAPI(stability="beta")
        ... def fetch():
        ...     '''Fetch it.'''
        >>> "in beta" in fetch.__doc__
        True
    """
    if stability not in get_args(Stability):
        known = ", ".join(get_args(Stability))
        raise ValueError(f"Unknown stability {stability!r} for PublicAPI; use one of: {known}.")
    note = None
    if stability != "stable":
        note = f"**PublicAPI ({stability}):** This API is in {stability}; later versions may change it."
    return _apply(obj, lambda target: _mark(target, AnnotationType.PUBLIC_API, api_group, note))


@overload
def DeveloperAPI(obj: T) -> T: ...


@overload
def DeveloperAPI(*, api_group: str = ...) -> Callable[[T], T]: ...


def DeveloperAPI(  # noqa: N802 (Ray's name)
    obj: T | None = None, *, api_group: str = _OTHERS
) -> T | Callable[[T], T]:
    """Declare a class or function as API for library authors, which may change in minor releases.

    Args:
        obj: The decorated object, if the decorator is used without parentheses.
        api_group: Heading in the documentation.
    """
    note = "**DeveloperAPI:** This API may change across minor releases."
    return _apply(obj, lambda target: _mark(target, AnnotationType.DEVELOPER_API, api_group, note))


@overload
def Deprecated(obj: T) -> T: ...


@overload
def Deprecated(*, message: str = ..., warning: bool = ...) -> Callable[[T], T]: ...


def Deprecated(  # noqa: N802 (Ray's name)
    obj: T | None = None, *, message: str = "", warning: bool = False
) -> T | Callable[[T], T]:
    """Declare a class or function as deprecated.

    Args:
        obj: The decorated object, if the decorator is used without parentheses.
        message: The replacement, for the docstring and the warning.
        warning: Whether its use emits a `RayDeprecationWarning`.
    """
    note = "\n    ".join(filter(None, [f".. warning::\n\n    **DEPRECATED**: {_DEPRECATED}", message]))

    def mark(target: T) -> T:
        _mark(target, AnnotationType.DEPRECATED, _OTHERS, note)
        return _add_warning(target, message) if warning else target

    return _apply(obj, mark)


def _apply(obj: T | None, decorate: Callable[[T], T]) -> T | Callable[[T], T]:
    """Support decorators with and without parentheses."""
    return decorate if obj is None else decorate(obj)


def _add_warning(target: T, message: str) -> T:
    """Make every use of `target` emit a warning at the caller's line."""
    text = "\n".join(filter(None, [f"{_DEPRECATED} {_SILENCE}", message]))
    is_class = inspect.isclass(target)
    function: Callable[..., Any] = target.__init__ if is_class else target

    @functools.wraps(function)
    def warn_first(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(text, RayDeprecationWarning, stacklevel=2)
        return function(*args, **kwargs)

    if is_class:
        target.__init__ = warn_first  # type: ignore[method-assign]
        return target
    return warn_first  # type: ignore[return-value]


def _mark(target: T, kind: AnnotationType, group: str, note: str | None) -> T:
    target._annotated = target.__name__  # type: ignore[attr-defined]
    target._annotated_type = kind  # type: ignore[attr-defined]
    target._annotated_api_group = group  # type: ignore[attr-defined]
    if note is not None:
        target.__doc__ = _append_note(target.__doc__, note)
    return target


def _append_note(docstring: str | None, note: str) -> str:
    """Return the docstring with `note` as its last paragraph, with matching indentation."""
    if not docstring:
        return note
    rest = [line for line in docstring.expandtabs().splitlines()[1:] if line.strip()]
    indent = " " * min((len(line) - len(line.lstrip()) for line in rest), default=0)
    paragraph = "\n".join(indent + line if line else "" for line in note.splitlines())
    return f"{docstring.rstrip()}\n\n{paragraph}\n{indent}"
