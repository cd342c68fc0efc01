"""Ray's path of the command line of Tune."""

from __future__ import annotations

from skate.tune.cli import scripts

__all__ = ["scripts"]
