"""Resources of trials."""

from skate.tune.execution.placement_groups import PlacementGroupFactory

__all__ = ["PlacementGroupFactory"]
