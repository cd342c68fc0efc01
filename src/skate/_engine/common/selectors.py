"""Matching a node's labels with what a task asks for."""

from __future__ import annotations

from collections.abc import Mapping


def matches(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Tell whether `labels` meet every selector: `v`, `!v`, `in(a, b)` or `!in(a, b)`.

    >>> matches({"zone": "in(a, b)", "spot": "!true"}, {"zone": "a"})
    True
    """
    return all(_meets(selector, labels.get(key)) for key, selector in wanted.items())


def _meets(selector: str, value: str | None) -> bool:
    negated = selector.startswith("!")
    body = selector.removeprefix("!")
    if body.startswith("in(") and body.endswith(")"):
        hit = value in [choice.strip() for choice in body[3:-1].split(",")]
    else:
        hit = value == body
    return hit != negated
