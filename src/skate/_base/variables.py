"""Environment variables of programs, with Skate's prefix, which takes precedence, or Ray's.

`SKATE_DEDUP_LOGS` and `RAY_DEDUP_LOGS` have the same meaning; the functions here take the name without the prefix. A
variable that is set to an empty text counts as not set. An invalid value raises ValueError with the name of the
variable.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import re

N = TypeVar("N", int, float)

PREFIXES = ("SKATE_", "RAY_")
_YES = ("1", "true", "yes", "on")
_NO = ("0", "false", "no", "off")


def find(name: str, environ: Mapping[str, str] = os.environ) -> tuple[str, str] | None:
    """Return the full name and the text of the variable that is set; None if neither is."""
    for prefix in PREFIXES:
        text = environ.get(prefix + name)
        if text:
            return prefix + name, text
    return None


def text(name: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the text of a variable, None if it is not set."""
    found = find(name, environ)
    return None if found is None else found[1]


def cache_folder() -> str:
    """Return this user's cache folder: `SKATE_CACHE_DIR`, or `skate` in the usual place for caches."""
    chosen = os.environ.get("SKATE_CACHE_DIR")
    if chosen:
        return os.path.expanduser(chosen)
    return os.path.join(os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache"), "skate")


def flag(name: str, default: bool) -> bool:
    """Return whether a variable is on.

    Raises:
        ValueError: The variable is neither on nor off.
    """
    found = find(name)
    return default if found is None else _is_on(*found)


def own_flag(name: str, default: bool) -> bool:
    """Return whether a variable of Skate is on that Ray does not have.

    Raises:
        ValueError: The variable is neither on nor off.
    """
    variable = f"SKATE_{name}"
    word = os.environ.get(variable)
    return _is_on(variable, word) if word else default


def _is_on(variable: str, word: str) -> bool:
    if word.lower() not in _YES + _NO:
        raise ValueError(f"{variable} is {word!r}: set it to 1 or 0.")
    return word.lower() in _YES


def number(
    name: str, default: float, *, at_least: float = float("-inf"), at_most: float = float("inf")
) -> float:
    """Return a variable as a number.

    Raises:
        ValueError: The variable is not a number, or out of range.
    """
    return _parse(name, float, "a number", default, at_least, at_most)


def integer(name: str, default: int, *, at_least: float = float("-inf")) -> int:
    """Return a variable as an integer.

    Raises:
        ValueError: The variable is not an integer, or too small.
    """
    return _parse(name, int, "an integer", default, at_least, float("inf"))


def _parse(name: str, kind: type[N], words: str, default: N, at_least: float, at_most: float) -> N:
    found = find(name)
    if found is None:
        return default
    variable, word = found
    try:
        value = kind(word)
    except ValueError:
        raise ValueError(f"{variable} must be {words}, got {word!r}") from None
    if not at_least <= value <= at_most:
        limits = [f"at least {at_least:g}"] * (at_least > float("-inf"))
        limits += [f"at most {at_most:g}"] * (at_most < float("inf"))
        raise ValueError(f"{variable} must be {' and '.join(limits) or words}, got {word!r}")
    return value


def pattern(name: str) -> re.Pattern[str] | None:
    """Return a variable as a regular expression, None if it is not set.

    Raises:
        ValueError: The variable is not a regular expression.
    """
    found = find(name)
    if found is None:
        return None
    import re  # most programs set none

    variable, word = found
    try:
        return re.compile(word)
    except re.error as error:
        raise ValueError(f"{variable} is {word!r}, which is not a regular expression: {error}") from None
