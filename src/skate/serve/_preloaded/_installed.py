"""Modules of libraries that may not be there."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

__all__ = ["load_installed"]


def load_installed(*names: str) -> None:
    """Import the modules whose libraries are installed."""
    for name in names:
        if find_spec(name.partition(".")[0]) is not None:
            import_module(name)
