"""How a writer treats an existing target."""

from __future__ import annotations

from enum import StrEnum


class SaveMode(StrEnum):
    """How to treat an existing target.

    Attributes:
        CREATE: Create a new table; raise an error if it exists.
        APPEND: Add to the existing data.
        OVERWRITE: Replace the existing data.
        IGNORE: Write nothing.
        ERROR: Raise an error.
        UPSERT: Replace rows with equal keys and add the others.
    """

    CREATE = "create"
    APPEND = "append"
    OVERWRITE = "overwrite"
    IGNORE = "ignore"
    ERROR = "error"
    UPSERT = "upsert"
