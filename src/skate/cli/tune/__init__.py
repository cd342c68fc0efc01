"""`skate tune`."""

from __future__ import annotations

from skate.cli.tune.commands import tune

__all__ = ["tune"]
