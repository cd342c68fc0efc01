"""Levels of `RunConfig(verbose=…)`."""

from __future__ import annotations

from enum import Enum

__all__ = ["Verbosity"]


class Verbosity(Enum):
    """How much Tune prints: nothing at 0, otherwise the progress of the trials."""

    V0_MINIMAL = 0
    V1_EXPERIMENT = 1
    V2_TRIAL_NORM = 2
    V3_TRIAL_DETAILS = 3

    def __int__(self) -> int:
        return int(self.value)
