"""Information about preempted nodes, such as spot instances."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PreemptionInfo:
    """The nodes that are about to be preempted.

    Attributes:
        deadline_ms: The time of the first preemption, in milliseconds of UNIX time; None if unknown.
        preempted_node_to_ranks: The world ranks on each of the nodes, by node id.
    """

    deadline_ms: int | None
    preempted_node_to_ranks: dict[str, list[int]]

    @property
    def preempted_node_ids(self) -> list[str]:
        """The sorted ids of the nodes."""
        return sorted(self.preempted_node_to_ranks)

    @property
    def preempted_ranks(self) -> list[int]:
        """The sorted world ranks on these nodes.

        >>> PreemptionInfo(None, {"b": [3, 2], "a": [0]}).preempted_ranks
        [0, 2, 3]
        """
        return sorted({rank for ranks in self.preempted_node_to_ranks.values() for rank in ranks})
