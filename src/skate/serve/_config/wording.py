"""Sentences that several checks of options share."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any


def closest(name: str, known: Iterable[str]) -> str:
    """Return the end of an error for a word that does not exist: the closest one that does, or all."""
    import difflib  # only the unlucky pay for it

    names = sorted(known)
    matches = difflib.get_close_matches(str(name), names, n=1)
    return f"Did you mean {matches[0]!r}?" if matches else f"Known are: {', '.join(names)}."


def check_json(name: str, value: Any) -> None:
    """Raise ValueError unless `value` can be written as JSON; bytes pass as they are."""
    if isinstance(value, bytes):
        return
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} is not JSON-serializable: {error}. Use dictionaries, lists, strings, numbers, booleans and None."
        ) from None


def check_gang_multiple(name: str, replicas: int | None, gang_size: int) -> None:
    """Raise ValueError where replicas would not fill whole gangs."""
    if replicas is not None and replicas % gang_size:
        raise ValueError(
            f"{name} ({replicas}) must be a multiple of gang_size ({gang_size}): replicas start and stop in "
            f"whole gangs. Use {replicas - replicas % gang_size + gang_size}, or another "
            "gang_scheduling_config.gang_size."
        )
