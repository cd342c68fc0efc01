"""Collective groups of actors that a driver makes and takes down."""

from __future__ import annotations

import uuid
from typing import Any

import skate
from skate.exceptions import ActorDiedError
from skate.experimental.collective.communicator import CommunicatorHandle
from skate.util import collective
from skate.util.collective.types import Backend

__all__ = [
    "create_collective_group",
    "destroy_all_collective_groups",
    "destroy_collective_group",
    "get_collective_groups",
]

_groups: dict[str, CommunicatorHandle] = {}  # that this process has made, by name


def get_collective_groups(actors: list[Any], backend: str | None = None) -> list[CommunicatorHandle]:
    """Return the groups of this driver that all the given actors are members of.

    Args:
        actors: The actors.
        backend: The backend of the groups; None for any.
    """
    kind = None if backend is None else Backend(backend)
    return [
        group
        for group in _groups.values()
        if all(actor in group.actors for actor in actors) and kind in (None, group.backend)
    ]


def create_collective_group(actors: list[Any], backend: str, name: str | None = None) -> CommunicatorHandle:
    """Connect actors in a collective group; their order gives the ranks.

    Args:
        actors: The members. An actor can be in one group of each backend.
        backend: As for `skate.util.collective.init_collective_group`.
        name: The name of the group; by default a new one.

    Raises:
        ValueError: An actor is listed twice, or the backend is unknown.
        RuntimeError: An actor is in a group of this backend already.
    """
    kind = Backend(backend)
    chosen = str(uuid.uuid4()) if name is None else name
    for actor in actors:
        if get_collective_groups([actor], kind):
            raise RuntimeError(
                f"Actor {actor} is already in a group for backend {kind}. Destroy that group first."
            )
    if len(set(actors)) != len(actors):
        raise ValueError(f"All actors must be unique, got: {actors}")
    size = len(actors)

    def join(_actor: Any, rank: int) -> None:
        collective.init_collective_group(size, rank, kind, chosen)

    skate.get([actor.__ray_call__.remote(join, rank) for rank, actor in enumerate(actors)])
    group = _groups[chosen] = CommunicatorHandle(actors, chosen, kind)
    return group


def destroy_collective_group(group_or_name: CommunicatorHandle | str) -> None:
    """Take a group down; its actors can join another one.

    Args:
        group_or_name: The group or its name.

    Raises:
        ValueError: This driver has made no such group.
    """
    if not isinstance(group_or_name, CommunicatorHandle | str):
        raise ValueError(f"Expected CommunicatorHandle or str (group name), got {group_or_name!r}.")
    name = group_or_name if isinstance(group_or_name, str) else group_or_name.name
    group = _groups.pop(name, None)
    if group is None:
        raise ValueError(f"No group with name {name} found; this driver has {sorted(_groups)}.")

    def leave(_actor: Any) -> None:
        collective.destroy_collective_group(name)

    try:
        skate.get([actor.__ray_call__.remote(leave) for actor in group.actors])
    except ActorDiedError:
        pass  # with an actor its membership has ended


def destroy_all_collective_groups() -> None:
    """Take all groups of this driver down."""
    for name in list(_groups):
        destroy_collective_group(name)
