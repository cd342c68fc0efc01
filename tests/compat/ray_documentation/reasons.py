"""Why examples do not pass: `reasons.toml`, in three classes.

`needs`: the example needs something that one machine without a network does not have. `ray`: it does not run with
Ray either. `differs`: Skate differs from Ray. A key names a file, or a page and the numbers of its blocks, like
``data/loading-data.rst:2,5-7``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REASONS = Path(__file__).with_name("reasons.toml")
CLASSES = ("needs", "ray", "differs")


@dataclass(frozen=True)
class Reason:
    """Why an example does not pass."""

    kind: str
    text: str


def read_reasons(text: str) -> dict[str, Reason]:
    """Return the reasons by the id of their example; refuse an unknown class and an example with two reasons."""
    reasons: dict[str, Reason] = {}
    for kind, table in tomllib.loads(text).items():
        if kind not in CLASSES:
            raise ValueError(f"[{kind}] is no class of reasons: use one of {', '.join(CLASSES)}.")
        for key, reason in table.items():
            for id in ids_of(key):
                if id in reasons:
                    raise ValueError(
                        f"{id} has two reasons: {reasons[id].text!r} and {reason!r}. Remove one."
                    )
                reasons[id] = Reason(kind, reason)
    return reasons


def ids_of(key: str) -> Iterator[str]:
    """Yield the ids of the examples that a key names."""
    name, separator, numbers = key.partition(":")
    if not separator:
        yield name
        return
    for part in numbers.split(","):
        first, _, last = part.strip().partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield f"{name}:{number}"
