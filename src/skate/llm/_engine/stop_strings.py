"""Find the first stop string in a text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Returns text up to the first stop string, and holds back text that may be the start of one.

    The stop string that is complete first ends the text. If several end at the same character, the longest one counts.
    Thus the result does not depend on how the text is divided into pieces.

    Args:
        stops: The stop strings, which must not be empty.

    Attributes:
        found: The stop string that ended the text, or None.

    >>> stops = StopStrings(["END"])
    >>> stops.add("one E"), stops.add("ver two EN"), stops.add("D three"), stops.found
    ('one ', 'Ever two ', '', 'END')
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.found: str | None = None
        self._held = ""
        self._stops = sorted(set(stops), key=len, reverse=True)
        self._borders = [_borders(stop) for stop in self._stops]
        self._matched = [0] * len(self._stops)  # how much of each stop string the text ends with

    def add(self, text: str) -> str:
        """Add text, and return the text that is certain to precede a stop string. After one, return nothing."""
        if not self._stops:
            return text
        if self.found is not None:
            return ""
        for at, character in enumerate(text):
            stop = self._advance(character)
            if stop is not None:
                self.found = stop
                before = (self._held + text[: at + 1])[: -len(stop)]
                self._held = ""
                return before
        pending = self._held + text
        keep = len(pending) - max(self._matched)
        self._held = pending[keep:]
        return pending[:keep]

    def finish(self) -> str:
        """Return the text that was held back, when no more text follows."""
        held, self._held = self._held, ""
        return held

    def _advance(self, character: str) -> str | None:
        """Match one more character with the Knuth–Morris–Pratt algorithm, and return the stop string that it ends."""
        complete = None
        for number, stop in enumerate(self._stops):
            matched = self._matched[number]
            borders = self._borders[number]
            while matched and stop[matched] != character:
                matched = borders[matched - 1]
            if stop[matched] == character:
                matched += 1
            if matched == len(stop):
                complete = complete or stop
                matched = borders[matched - 1]
            self._matched[number] = matched
        return complete


def _borders(stop: str) -> list[int]:
    """Return, for each prefix of a string, the length of its longest proper prefix that is also its suffix."""
    borders = [0] * len(stop)
    matched = 0
    for at in range(1, len(stop)):
        while matched and stop[at] != stop[matched]:
            matched = borders[matched - 1]
        if stop[at] == stop[matched]:
            matched += 1
        borders[at] = matched
    return borders
