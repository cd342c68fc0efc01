"""What a writer does when there is something at its target already."""

from __future__ import annotations

from enum import StrEnum


class SaveMode(StrEnum):
    """What to do when the target exists.

    Attributes:
        CREATE: Make a new table; an error if it exists.
        APPEND: Add to what is there.
        OVERWRITE: Replace what is there.
        IGNORE: Write nothing.
        ERROR: Raise.
        UPSERT: Replace rows with the same key, and add the others.
    """

    CREATE = "create"
    APPEND = "append"
    OVERWRITE = "overwrite"
    IGNORE = "ignore"
    ERROR = "error"
    UPSERT = "upsert"
