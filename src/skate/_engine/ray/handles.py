"""Ray's handles of actors, which Skate's handles keep, by the actor's id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from skate import exceptions
from skate._engine.common import failures

if TYPE_CHECKING:
    from skate._engine.ray.engine import RayEngine


class Kept:
    """Ray's handle of an actor, with a cache of its methods."""

    __slots__ = ("__weakref__", "_methods", "engine", "handle")

    def __init__(self, handle: Any, engine: RayEngine) -> None:
        self.handle = handle
        self.engine = engine
        self._methods: dict[str, Any] = {}

    def method(self, name: str) -> Any:
        """Return Ray's method; it is cached, because Ray takes ten microseconds to make one."""
        found = self._methods.get(name)
        if found is None:
            found = self._methods[name] = getattr(self.handle, name)
        return found


class Handles:
    """The handles of one session in this process, by the actor's id.

    A handle that keeps an actor alive is shared by Skate's handles of that actor; this table has a weak reference. A
    handle found by name keeps nothing alive, and stays in the table.
    """

    def __init__(self, engine: RayEngine) -> None:
        self._engine = engine
        self._known: WeakValueDictionary[bytes, Kept] = WeakValueDictionary()
        self._found: dict[bytes, Kept] = {}

    def note(self, handle: Any, *, stays: bool = False) -> tuple[bytes, Kept]:
        """Add a handle to the table; return the id of its actor, and the entry.

        Args:
            handle: One of Ray's.
            stays: Whether the table itself keeps the handle.
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
