"""Metrics by their names."""

from __future__ import annotations

from collections.abc import Mapping
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
