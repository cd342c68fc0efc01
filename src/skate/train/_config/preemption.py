"""Nodes that are about to be taken away, as spot instances are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PreemptionInfo:
    """Which nodes are about to be taken away.

    Attributes:
        deadline_ms: When the first of them is, in milliseconds of UNIX time; None if it is not known.
        preempted_node_to_ranks: The world ranks on each of the nodes, by node id.
    """

    deadline_ms: int | None
    preempted_node_to_ranks: dict[str, list[int]]

    @property
    def preempted_node_ids(self) -> list[str]:
        """The ids of the nodes, in order."""
        return sorted(self.preempted_node_to_ranks)

    @property
    def preempted_ranks(self) -> list[int]:
        """The world ranks on these nodes, in order.

        >>> PreemptionInfo(None, {"b": [3, 2], "a": [0]}).preempted_ranks
        [0, 2, 3]
        """
        return sorted({rank for ranks in self.preempted_node_to_ranks.values() for rank in ranks})
