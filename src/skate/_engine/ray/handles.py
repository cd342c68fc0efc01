"""Ray's handles of actors: what Skate's handles keep, and how they are found by the actor's id."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

from skate import exceptions
from skate._engine.common import failures


class Kept:
    """Ray's handle of an actor, as a handle of Skate keeps it, with the methods that were called on it."""

    __slots__ = ("__weakref__", "_methods", "engine", "handle")

    def __init__(self, handle: Any, engine: Any) -> None:
        self.handle = handle
        self.engine = engine
        self._methods: dict[str, Any] = {}

    def method(self, name: str) -> Any:
        """Return Ray's method; it is kept, because Ray takes ten microseconds to make one."""
        found = self._methods.get(name)
        if found is None:
            found = self._methods[name] = getattr(self.handle, name)
        return found


class Handles:
    """The handles that one session has met in this process, by the actor's id.

    One that keeps an actor alive belongs to Skate's handles, all of which share it, and is only looked up here. One
    found by name keeps nothing alive, and stays.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._known: WeakValueDictionary[bytes, Kept] = WeakValueDictionary()
        self._found: dict[bytes, Kept] = {}

    def note(self, handle: Any, *, stays: bool = False) -> tuple[bytes, Kept]:
        """Remember a handle; return the id of its actor, and what keeps it.

        Args:
            handle: One of Ray's.
            stays: Whether it is kept here: nobody else may hold it.
        """
        id: bytes = handle._actor_id.binary()
        table: Any = self._found if stays else self._known
        kept = table.get(id)
        if kept is None:
            kept = table[id] = Kept(handle, self._engine)
        return id, kept

    def __getitem__(self, actor: bytes) -> Kept:
        kept = self._known.get(actor) or self._found.get(actor)
        if kept is None:
            raise exceptions.ActorHandleNotFoundError(failures.foreign_handle(actor))
        return kept
