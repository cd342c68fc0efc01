"""`skate llm`."""

from __future__ import annotations

from skate.cli.llm.group import llm

__all__ = ["llm"]
