"""Whether files are trusted that can run code when they are read, as pickled objects do."""

from __future__ import annotations

import os

#: The variable of the environment that says so.
ALLOW_PICKLED = "SKATE_DATA_READ_PICKLED_OBJECTS"


def unpickles(*others: str) -> bool:
    """Return whether pickled objects may be read.

    Args:
        others: Names of variables that Ray reads for the same.
    """
    return any(os.environ.get(name, "").lower() in ("1", "true") for name in (ALLOW_PICKLED, *others))
