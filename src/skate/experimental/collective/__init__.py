"""Collective groups of actors, created and destroyed by a driver."""

from skate.experimental.collective.collective import (
    create_collective_group,
    destroy_all_collective_groups,
    destroy_collective_group,
    get_collective_groups,
)

__all__ = [
    "create_collective_group",
    "destroy_all_collective_groups",
    "destroy_collective_group",
    "get_collective_groups",
]
