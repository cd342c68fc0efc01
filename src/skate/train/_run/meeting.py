"""Workers that wait for each other, whatever framework connects them: whoever drives the run counts them."""

from __future__ import annotations

from typing import Any


class Meeting:
    """Answers workers once all of them have asked.

    Args:
        world: How many workers there are.
    """

    def __init__(self, world: int) -> None:
        self._world = world
        self._here: dict[str, dict[int, tuple[int, Any]]] = {}

    def arrived(self, rank: int, number: int, question: str, value: Any) -> list[tuple[int, int, Any]]:
        """A worker asks; return whom to answer: rank, number of the question, and rank 0's value."""
        here = self._here.setdefault(question, {})
        here[rank] = (number, value)
        if len(here) < self._world:
            return []
        del self._here[question]
        return [(each, asked, here[0][1]) for each, (asked, _) in here.items()]
