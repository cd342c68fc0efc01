"""Metrics and criteria by name: the values of nested dictionaries have paths such as `eval/loss`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def lookup(result: Mapping[str, Any], name: str) -> Any:
    """Return the value of a metric, whose name may be a path such as `eval/loss`; None if there is none."""
    if name in result:
        return result[name]
    value: Any = result
    for part in name.split("/"):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def flat(values: Mapping[str, Any], prefix: str = "", *, delimiter: str = "/") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested dictionaries with their paths.

    >>> dict(flat({"lr": 0.1, "model": {"layers": 2, "width": {"first": 8}}}))
    {'lr': 0.1, 'model/layers': 2, 'model/width/first': 8}
    """
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}{delimiter}", delimiter=delimiter)
        else:
            yield f"{prefix}{key}", value
