"""Options that a reader does not know, found before anything is read."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable


def refuse(given: Iterable[str], known: Collection[str], reader: str) -> None:
    """Refuse options that nobody would look at.

    Args:
        given: Their names.
        known: What the reader takes.
        reader: The call that the user made: `read_csv`.

    Raises:
        TypeError: An option is unknown; names the closest one.
    """
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(known))}"
            raise TypeError(f"{reader} got an unexpected keyword argument {name!r}: {hint}")
