"""`skate serve`."""

from __future__ import annotations

from skate.cli.serve.commands import serve

__all__ = ["serve"]
