"""Import objects that a configuration refers to by import path."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["import_object"]


def import_object(field: str, path: str) -> Any:
    """Return the object at an import path.

    >>> import_object("server_cls", "collections:OrderedDict")
    <class 'collections.OrderedDict'>

    Args:
        field: The field that contains the path, for error messages.
        path: `"module:name"` or `"module.name"`.

    Raises:
        ValueError: If there is no such object.
    """
    module, colon, name = path.partition(":")
    if not colon:
        module, _, name = path.rpartition(".")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"`{field}` is {path!r}, which cannot be imported: {error}. Write the path as 'module:name'."
        ) from error
    return found
