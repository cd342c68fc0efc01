"""Ray's path of the command line."""

from __future__ import annotations

from skate.scripts import scripts

__all__ = ["scripts"]
