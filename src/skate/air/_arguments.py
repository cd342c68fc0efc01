"""Checks of arguments, whose errors name the parameter, what it must be, and the given value.

Each check returns the value, and raises TypeError for a wrong type and ValueError for a value out of range.
"""

from __future__ import annotations

import json
import math
import numbers
import operator
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from skate._api.argument_errors import message, shown
from skate._base.suggestions import did_you_mean

__all__ = [
    "arity", "as_json", "choice", "flag", "folder_name", "function", "has_search_values", "hint_for_unknown",
    "instance", "mapping", "naming", "one_of", "path", "real", "refuse", "shown", "text", "whole",
]  # fmt: skip

T = TypeVar("T")


def refuse(name: str, must: str, value: Any, error: type[Exception] = TypeError) -> NoReturn:
    """Raise the error for a wrong argument.

    Args:
        name: The parameter, as the user writes it.
        must: What it must be, such as "a positive integer".
        value: The given value.
        error: The class of the error.
    """
    raise error(message(name, must, value))


def has_search_values(value: Any) -> bool:
    """Return whether a value is, or contains, a part of a search space of Tune, which is sampled for each trial."""
    sample = sys.modules.get("skate.tune.search.sample")  # imported by a program that has such values
    if sample is not None and isinstance(value, sample.Domain):
        return True
    if isinstance(value, Mapping):
        return set(value) == {"grid_search"} or any(map(has_search_values, value.values()))
    return isinstance(value, list | tuple) and any(map(has_search_values, value))


def instance(
    name: str,
    value: T,
    kinds: type | tuple[type, ...],
    must: str,
    *,
    optional: bool = False,
    error: type[Exception] = TypeError,
) -> T:
    """Check the type of an argument; with `optional`, None is allowed."""
    if not isinstance(value, kinds) and not (optional and value is None):
        refuse(name, f"{must} or None" if optional else must, value, error)
    return value


def whole(
    name: str,
    value: Any,
    *,
    low: int = 0,
    high: int | None = None,
    must: str = "",
    error: type[Exception] = TypeError,
) -> int:
    """Check an integer and its range.

    Args:
        name: The parameter.
        value: The given value; NumPy integers are allowed, booleans are not.
        low: The smallest value.
        high: The largest value.
        must: What it must be, if the range does not describe it.
        error: The class of the error for a wrong type.

    >>> whole("num_replicas", 0, low=1)
    Traceback (most recent call last):
    ...
    ValueError: `num_replicas` must be a positive integer, got 0 (int).
    """
    must = must or _range(low, high)
    if isinstance(value, bool):
        refuse(name, must, value, error)
    try:
        number = operator.index(value)
    except TypeError:
        refuse(name, must, value, error)
    if number < low or (high is not None and number > high):
        refuse(name, must, value, ValueError)
    return number


def _range(low: int, high: int | None) -> str:
    if high is not None:
        return f"an integer from {low} to {high}"
    return {0: "a non-negative integer", 1: "a positive integer"}.get(low, f"an integer of at least {low}")


def real(name: str, value: Any, *, above_zero: bool = False, unit: str = "", optional: bool = False) -> Any:
    """Check a non-negative number, with `above_zero` a positive one; with `optional`, None is allowed."""
    must = f"a {'positive' if above_zero else 'non-negative'} number{unit and f' of {unit}'}{' or None' * optional}"
    if optional and value is None:
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        refuse(name, must, value)
    number = float(value)
    if math.isnan(number) or number < 0 or (above_zero and number == 0):
        refuse(name, must, value, ValueError)
    return value


def choice(name: str, value: T, choices: Collection[Any], error: type[Exception] = ValueError) -> T:
    """Check that an argument is one of some values."""
    if not any(value is each or (type(value) is type(each) and value == each) for each in choices):
        refuse(name, one_of(choices), value, error)
    return value


def one_of(choices: Iterable[Any]) -> str:
    """Return choices as text.

    >>> one_of(["ddp", "fsdp", None])
    "'ddp', 'fsdp' or None"
    """
    *first, last = map(repr, choices)
    return f"{', '.join(first)} or {last}" if first else last


def flag(name: str, value: T) -> T:
    """Check a boolean; numbers are allowed, strings are not, since "no" would count as true."""
    if value is not None and not isinstance(value, numbers.Number) and type(value).__name__ != "bool":
        refuse(name, "True or False", value)
    return value


def text(name: str, value: Any, must: str = "a string", *, optional: bool = False) -> Any:
    """Check a string that is not empty; with `optional`, None is allowed."""
    instance(name, value, str, must, optional=optional)
    if value == "":
        refuse(name, f"{must} that is not empty", value, ValueError)
    return value


def mapping(
    name: str, value: Any, must: str = "a dictionary", *, error: type[Exception] = TypeError
) -> dict[Any, Any]:
    """Check a dictionary, and return a copy; an empty one for None."""
    if value is not None and not isinstance(value, Mapping):
        refuse(name, must, value, error)
    return dict(value or {})


def function(name: str, value: T, must: str = "a function", *, optional: bool = False) -> T:
    """Check that an argument is callable; with `optional`, None is allowed."""
    if not callable(value) and not (optional and value is None):
        refuse(name, f"{must} or None" if optional else must, value)
    return value


def path(name: str, value: Any) -> str:
    """Check a path, and return it as a string."""
    if not isinstance(value, str | os.PathLike) or not isinstance(found := os.fspath(value), str):
        refuse(name, "a path (a string or an os.PathLike object)", value)
    return found


def as_json(name: str, value: Any) -> None:
    """Raise ValueError unless a value is JSON-serializable."""
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{name} is not JSON-serializable: {error}. Use dictionaries, lists, strings, numbers, booleans and None, "
            f"got {shown(value)}."
        ) from None


def hint_for_unknown(name: str, known: Iterable[str]) -> str:
    """Return the hint for an unknown name: the closest known one, or all of them."""
    names = sorted(known)
    return did_you_mean(str(name), names).lstrip() or f"Known are: {', '.join(names)}."


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Prefix the errors of a check that does not know the parameter with its name."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise type(error)(f"`{name}`: {error}") from None


def arity(function: Callable[..., Any]) -> tuple[list[str], list[str]]:
    """Return the required parameters of a function: the positional ones, and the keyword-only ones."""
    import inspect

    parameters = [
        each
        for each in inspect.signature(function).parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    return (
        [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY],
        [each.name for each in parameters if each.kind is each.KEYWORD_ONLY],
    )


def folder_name(name: str, value: Any) -> str:
    """Check the name of a folder, which may be nested, and return it as a string.

    Raises:
        TypeError: It is neither a string nor a path.
        ValueError: It is absolute, leads out of its parent folder, names that folder itself, or contains control
            characters.

    >>> folder_name("name", "sweep/first")
    'sweep/first'
    """
    found = path(name, value)
    if reason := _folder_name_error(found):
        raise ValueError(f"`{name}` is {found!r}: {reason}.")
    return found


def _folder_name_error(name: str) -> str | None:
    if name.startswith("/"):
        return (
            "it must be relative to its parent folder; RunConfig(storage_path=…) sets the folder of all runs"
        )
    if ".." in name.split("/"):
        return "it must not lead out of its parent folder with '..'"
    if not any(part not in ("", ".") for part in name.split("/")):
        return "it names no folder"
    if any(not character.isprintable() for character in name):
        return "it must not contain line breaks or other control characters"
    return None
