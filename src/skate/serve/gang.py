"""The context of replicas that belong to a gang: replicas that are placed, started and stopped together."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["GangContext"]


@dataclass
class GangContext:
    """The gang of a replica: `serve.get_replica_context().gang_context`.

    Args:
        gang_id: The id of the gang.
        rank: The rank of the replica in the gang, from 0.
        world_size: The number of replicas in the gang.
        member_replica_ids: The unique parts of their ids, by rank.
        pg_name: The name of the gang's placement group.

    >>> GangContext("a1b2", rank=1, world_size=2, member_replica_ids=["x", "y"]).member_replica_ids[1]
    'y'
    """

    gang_id: str
    rank: int
    world_size: int
    member_replica_ids: list[str] = field(default_factory=list)
    pg_name: str = ""
