"""The base class of collective groups with a custom backend."""

from skate.util.collective.collective_group.base_collective_group import BaseGroup

__all__ = ["BaseGroup"]
