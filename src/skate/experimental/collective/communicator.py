"""The handle of a collective group."""

from __future__ import annotations

from typing import Any

from skate.util.collective.types import Backend

__all__ = ["CommunicatorHandle"]


class CommunicatorHandle:
    """A collective group, as seen by the driver that created it.

    Args:
        actors: The members, in the order of their ranks.
        name: The name of the group.
        backend: The backend of the group.
    """

    def __init__(self, actors: list[Any], name: str, backend: str) -> None:
        self._actors = list(actors)
        self._name = name
        self._backend = Backend(backend)

    def get_rank(self, actor: Any) -> int:
        """Return the rank of an actor; -1 if it is not a member."""
        return self._actors.index(actor) if actor in self._actors else -1

    @property
    def actors(self) -> list[Any]:
        """The members, in the order of their ranks."""
        return list(self._actors)

    @property
    def name(self) -> str:
        """The name of the group."""
        return self._name

    @property
    def backend(self) -> Backend:
        """The backend of the group."""
        return self._backend
