"""Imports of optional libraries."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec

__all__ = ["is_installed", "load_installed"]


@cache
def is_installed(library: str) -> bool:
    """Return whether a library is installed."""
    return find_spec(library) is not None


def load_installed(*names: str) -> None:
    """Import the modules whose libraries are installed."""
    for name in names:
        if is_installed(name.partition(".")[0]):
            import_module(name)
