"""Names that a module exports, as in Ray, although another module defines them; loaded at their first use."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(module: str, homes: dict[str, str]) -> Callable[[str], Any]:
    """Return a function for a module's `__getattr__`.

    An import at the top of the module would slow down every program, or close an import cycle.

    Args:
        module: The name of the module.
        homes: The dotted path of the object for each name.

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
