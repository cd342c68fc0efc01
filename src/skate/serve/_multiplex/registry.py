"""The models of each replica in this process, which the replica reports to routers."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from skate.serve._multiplex.cache import ModelCache
from skate.serve.context import _get_replica

Callback = Callable[[frozenset[str]], None]


class Registry:
    """The caches and listeners of one replica, or of a process outside of replicas."""

    def __init__(self) -> None:
        self._caches: weakref.WeakSet[ModelCache] = weakref.WeakSet()
        self._callbacks: list[Callback] = []
        self._last_reported: frozenset[str] = frozenset()

    def ids(self) -> frozenset[str]:
        """Return the ids of loaded and loading models."""
        return frozenset(model_id for cache in self._caches for model_id in cache.ids)

    def add(self, cache: ModelCache) -> None:
        """Add a cache."""
        self._caches.add(cache)

    def on_change(self, callback: Callback) -> Callable[[], None]:
        """Call a function with the ids whenever they change; return a function that unsubscribes it."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def notify(self) -> None:
        """Call the listeners if the ids have changed."""
        ids = self.ids()
        if ids == self._last_reported:
            return
        self._last_reported = ids
        for callback in list(self._callbacks):
            callback(ids)

    async def clear(self) -> None:
        """Unload all models."""
        for cache in list(self._caches):
            await cache.clear()


_registries: dict[Any, Registry] = {}


def registry() -> Registry:
    """Return the registry of the calling replica. On the inline engine, a process contains several replicas."""
    replica = _get_replica()
    key = None if replica is None else replica.replica_id
    if key not in _registries:
        _registries[key] = Registry()
    return _registries[key]


async def close_registry() -> None:
    """Unload all models of the calling replica and remove its registry."""
    replica = _get_replica()
    key = None if replica is None else replica.replica_id
    if key in _registries:
        await _registries[key].clear()
        del _registries[key]
