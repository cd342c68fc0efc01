"""The command line: `skate`."""

from __future__ import annotations

from skate.cli.program import main

__all__ = ["main"]
