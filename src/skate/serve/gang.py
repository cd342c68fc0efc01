"""What a replica knows of its gang: the replicas that were placed with it, and start and stop with it."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["GangContext"]


@dataclass
class GangContext:
    """The gang that a replica belongs to: `serve.get_replica_context().gang_context`.

    Args:
        gang_id: Which gang it is.
        rank: The replica's number within it, from 0.
        world_size: How many replicas it has.
        member_replica_ids: The unique parts of their ids, by rank.
        pg_name: The name of the placement group that holds the gang.

    >>> GangContext("a1b2", rank=1, world_size=2, member_replica_ids=["x", "y"]).member_replica_ids[1]
    'y'
    """

    gang_id: str
    rank: int
    world_size: int
    member_replica_ids: list[str] = field(default_factory=list)
    pg_name: str = ""
