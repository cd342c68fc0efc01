"""Placement groups: resources reserved together, before the work that uses them starts."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from skate._placement_group import (
    NODE_ID_LABEL_KEY,
    VALID_PLACEMENT_GROUP_STRATEGIES,
    PlacementGroup,
    check_placement_group_index,
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
    validate_placement_group,
)

__all__ = [
    "NODE_ID_LABEL_KEY",
    "VALID_PLACEMENT_GROUP_STRATEGIES",
    "PlacementGroup",
    "check_placement_group_index",
    "get_current_placement_group",
    "get_placement_group",
    "placement_group",
    "placement_group_table",
    "remove_placement_group",
    "validate_placement_group",
]


class _Callable(ModuleType):
    """Makes `skate.util.placement_group(...)` work: that name is both this module and the function in it."""

    def __call__(self, *args: Any, **kwargs: Any) -> PlacementGroup:
        return placement_group(*args, **kwargs)


# Which of the two `skate.util` holds depends on whether this module was imported before.
sys.modules[__name__].__class__ = _Callable
