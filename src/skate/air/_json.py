"""Metrics in a form that JSON can represent."""

from __future__ import annotations

from typing import Any


def as_json(value: Any) -> Any:
    """Return a metric in a form that JSON can represent: a number, a list, or its repr."""
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "size", 1) in (1, ()):
        return item()
    tolist = getattr(value, "tolist", None)
    return tolist() if callable(tolist) else repr(value)
