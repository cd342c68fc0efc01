"""Lets Lightning take ranks from the trainer, in place of starting processes of its own."""

from __future__ import annotations

from typing import Any

from skate.train._workers.context import get_context
from skate.train.lightning._framework import part

__all__ = ["RayLightningEnvironment"]

_Base: Any = part("plugins.environments").LightningEnvironment


class RayLightningEnvironment(_Base):  # type: ignore[misc]  # Any: it is optional
    """A plugin for Lightning's `Trainer`: the workers are there, and have their ranks, before it begins."""

    @property
    def creates_processes_externally(self) -> bool:
        """Whether somebody else has started the workers: always."""
        return True

    def world_size(self) -> int:
        """Return how many workers train."""
        return get_context().get_world_size()

    def global_rank(self) -> int:
        """Return this worker's number among all."""
        return get_context().get_world_rank()

    def local_rank(self) -> int:
        """Return this worker's number among those of its node."""
        return get_context().get_local_rank()

    def node_rank(self) -> int:
        """Return the number of this worker's node."""
        return get_context().get_node_rank()

    def set_world_size(self, size: int) -> None:
        """Do nothing: Lightning counts the devices that it sees, which are this worker's alone."""

    def set_global_rank(self, rank: int) -> None:
        """Do nothing, for the same reason."""

    def teardown(self) -> None:
        """Do nothing: the workers go on after Lightning's training."""
