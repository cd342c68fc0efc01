"""Environment variables of workers, which may refer to other variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$\{(\w+)\}|\$(\w+)")


def expand_variables(variables: Mapping[str, str], base: Mapping[str, str]) -> dict[str, str]:
    """Return variables with ``${NAME}`` replaced by its value, or removed if unknown.

    Later variables see earlier ones. ``$NAME`` without braces is replaced too, but kept if unknown.

    Args:
        variables: Names and texts.
        base: The environment that they are added to.
    """
    known = dict(base)
    expanded: dict[str, str] = {}
    for name, text in variables.items():
        expanded[name] = known[name] = _REFERENCE.sub(lambda match: _value(match, known), text)
    return expanded


def _value(match: re.Match[str], known: Mapping[str, str]) -> str:
    braced, bare = match.groups()
    if braced is not None:
        return known.get(braced, "")
    return known.get(bare, match.group(0))


def prepend_path(entries: list[str], current: str | None) -> str:
    """Return a search path with entries in front of the current ones."""
    return os.pathsep.join([*entries, *([current] if current else [])])
