"""Stop nothing."""

from __future__ import annotations

from typing import Any

from skate.tune.stopper.stopper import Stopper

__all__ = ["NoopStopper"]


class NoopStopper(Stopper):
    """Stop nothing: trials run until they end by themselves."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return False."""
        return False

    def stop_all(self) -> bool:
        """Return False."""
        return False
