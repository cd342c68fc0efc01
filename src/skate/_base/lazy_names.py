"""Names that a module has, as in Ray, but that another module defines: they load at their first use."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(module: str, homes: dict[str, str]) -> Callable[[str], Any]:
    """Return a function for a module's `__getattr__`.

    An import at the top of the module would cost every program time, or close a cycle of imports.

    Args:
        module: The name of the module.
        homes: For each name of the module, the dotted path of the object.

    Example:
        >>> find = lazy_names(__name__, {"Tree": "ast.Module"})
        >>> find("Tree")
        <class 'ast.Module'>
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(
                f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module]
            )
        home, _, attribute = homes[name].rpartition(".")
        value = getattr(import_module(home), attribute)
        setattr(sys.modules[module], name, value)
        return value

    return find
