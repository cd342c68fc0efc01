"""Placement groups: bundles of resources that are reserved together."""

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
    """Make `skate.util.placement_group(...)` callable: the name refers to both this module and its function."""

    def __call__(self, *args: Any, **kwargs: Any) -> PlacementGroup:
        return placement_group(*args, **kwargs)


# Which of the two `skate.util` holds depends on whether this module was imported before.
sys.modules[__name__].__class__ = _Callable
