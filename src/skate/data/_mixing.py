"""Stopping conditions of a mix of datasets."""

from __future__ import annotations

import enum

__all__ = ["MixStoppingCondition"]


class MixStoppingCondition(enum.StrEnum):
    """When a mix of datasets ends.

    Attributes:
        STOP_ON_SHORTEST: End when the first dataset is exhausted.
        STOP_ON_LONGEST_DROP: End when all datasets are exhausted; exhausted ones are dropped.
    """

    STOP_ON_SHORTEST = "stop_on_shortest"
    STOP_ON_LONGEST_DROP = "stop_on_longest_drop"
