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


def flatten_criteria(criteria: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return stopping criteria by the paths of their metrics, such as `eval/loss`; they may be nested."""
    flat: dict[str, Any] = {}
    for name, limit in criteria.items():
        if isinstance(limit, Mapping):
            flat.update(flatten_criteria(limit, f"{prefix}{name}/"))
        else:
            flat[f"{prefix}{name}"] = limit
    return flat
