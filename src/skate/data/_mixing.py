"""When a mix of datasets ends."""

from __future__ import annotations

import enum

__all__ = ["MixStoppingCondition"]


class MixStoppingCondition(enum.StrEnum):
    """When a mix of datasets ends.

    Attributes:
        STOP_ON_SHORTEST: With the first dataset that has no more rows.
        STOP_ON_LONGEST_DROP: With the last one; a dataset that ends before is left out from then on.
    """

    STOP_ON_SHORTEST = "stop_on_shortest"
    STOP_ON_LONGEST_DROP = "stop_on_longest_drop"
