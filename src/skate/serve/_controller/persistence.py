"""Persistence of the controller's state for the lifetime of the session, so that a restarted controller can recover it.

On one machine, a folder of the session stores the state. On a cluster, where the next controller may run on another
machine, a dedicated actor stores it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import skate
from skate import cloudpickle
from skate.exceptions import ActorDiedError, RayActorError
from skate.serve._controller.records import ControllerRecord, decode, encode
from skate.serve._runtime.engine import actor_class, call_actor, wait_until_stopped
from skate.serve._runtime.ids import NAMESPACE, new_id
from skate.serve._runtime.stop_event import StopEvent
from skate.util._session import engine_name, session_folder

__all__ = [
    "STORAGE_ACTOR_NAME",
    "ActorStorage",
    "FolderStorage",
    "LoadObject",
    "StateStore",
    "Storage",
    "StorageActor",
    "open_storage",
]

logger = logging.getLogger("skate.serve")

STORAGE_ACTOR_NAME = "SERVE_STATE_STORAGE_ACTOR"
_RECORD_KEY = "record"
_TEMPORARY_SUFFIX = ".new"
_RETRY_DELAY_S = 0.1
# On the head node, so that the actor ends with the cluster and not with another machine.
_HEAD_NODE_RESOURCES = {"node:__internal_head__": 0.001}


class Storage(Protocol):
    """A key-value store of bytes. Used on the controller's loop."""

    async def open(self) -> dict[str, bytes]:
        """Return all stored entries."""

    async def write(self, entries: Mapping[str, bytes | None]) -> None:
        """Store entries in order; None removes an entry."""

    async def close(self) -> None:
        """Remove all entries."""


def open_storage() -> Storage:
    """Return the storage of this session."""
    folder = session_folder()
    if folder is not None:
        return FolderStorage(Path(folder, "serve"))
    return ActorStorage(_HEAD_NODE_RESOURCES) if engine_name() == "ray" else _NoStorage()


class FolderStorage:
    """Stores each entry in a file, which is replaced atomically."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def open(self) -> dict[str, bytes]:
        """Return all stored entries."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        return {
            path.name: path.read_bytes()
            for path in self._folder.iterdir()
            if path.suffix != _TEMPORARY_SUFFIX
        }

    async def write(self, entries: Mapping[str, bytes | None]) -> None:
        """Store entries in order; None removes an entry."""
        for name, data in entries.items():
            path = self._folder / name
            if data is None:
                path.unlink(missing_ok=True)
            else:
                temporary = path.with_suffix(_TEMPORARY_SUFFIX)
                temporary.write_bytes(data)
                os.replace(temporary, path)

    async def close(self) -> None:
        """Remove all entries."""
        shutil.rmtree(self._folder, ignore_errors=True)


class _NoStorage:
    """Stores nothing, for a controller inside the program's process, which never restarts alone."""

    async def open(self) -> dict[str, bytes]:
        return {}

    async def write(self, entries: Mapping[str, bytes | None]) -> None:
        return

    async def close(self) -> None:
        return


class StorageActor:
    """The actor that stores entries on a cluster."""

    def __init__(self) -> None:
        self._entries: dict[str, bytes] = {}
        self._stop_event = StopEvent()

    def read(self) -> dict[str, bytes]:
        """Return all entries."""
        return self._entries

    def write(self, entries: dict[str, bytes | None]) -> None:
        """Store entries; None removes an entry."""
        for name, data in entries.items():
            if data is None:
                self._entries.pop(name, None)
            else:
                self._entries[name] = data

    def until_stopped(self) -> bool:
        """Block until another controller waits; a caller learns at once if the process dies."""
        return self._stop_event.wait()


class ActorStorage:
    """Stores entries in an actor. If the actor dies, a new one gets a copy of all entries.

    Args:
        resources: Resources that place the actor.
    """

    def __init__(self, resources: dict[str, float] | None = None) -> None:
        self._resources = resources or {}
        self._entries: dict[str, bytes] = {}
        self._actor: Any = None
        self._watch_task: asyncio.Task[None] | None = None
        self._write_lock = asyncio.Lock()

    async def open(self) -> dict[str, bytes]:
        """Return all stored entries."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                actor = await loop.run_in_executor(None, skate.get_actor, STORAGE_ACTOR_NAME, NAMESPACE)
                self._entries = dict(await call_actor(actor.read))
            except (ValueError, ActorDiedError) as error:
                logger.debug("No stored state was found: %s", error)
                return {}
            except RayActorError as error:
                # The actor exists but is unreachable. Continuing without its entries would stop everything that runs.
                logger.warning("The actor that stores the controller's state does not answer: %s", error)
                await asyncio.sleep(_RETRY_DELAY_S)
            else:
                self._use_actor(actor)
                return dict(self._entries)

    async def write(self, entries: Mapping[str, bytes | None]) -> None:
        """Store entries in order; None removes an entry."""
        for name, data in entries.items():
            if data is None:
                self._entries.pop(name, None)
            else:
                self._entries[name] = data
        async with self._write_lock:
            if self._actor is not None:
                try:
                    await call_actor(self._actor.write, dict(entries))
                    return
                except ActorDiedError:
                    self._actor = None
            await self._create_actor()

    async def _create_actor(self) -> None:
        storage_class = actor_class(StorageActor, "ServeStateStorage").options(
            name=STORAGE_ACTOR_NAME,
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            resources=self._resources,
            max_concurrency=4,
        )
        actor = await asyncio.get_running_loop().run_in_executor(None, storage_class.remote)
        await call_actor(actor.write, dict(self._entries))
        self._use_actor(actor)

    def _use_actor(self, actor: Any) -> None:
        self._actor = actor
        self._watch_task = asyncio.ensure_future(self._watch(actor))

    async def _watch(self, actor: Any) -> None:
        is_actor_lost = False
        while self._actor is actor:
            try:
                if is_actor_lost:
                    # This creates a new actor unless the old one is reachable again.
                    await self.write(dict(self._entries))
                    is_actor_lost = False
                else:
                    await wait_until_stopped(actor)
            except RayActorError as error:
                logger.warning("The actor that stores the controller's state is lost: %s", error)
                is_actor_lost = True
                await asyncio.sleep(_RETRY_DELAY_S)

    async def close(self) -> None:
        """Remove all entries."""
        if self._watch_task is not None:
            self._watch_task.cancel()
        if self._actor is not None:
            await asyncio.get_running_loop().run_in_executor(None, skate.kill, self._actor)


LoadObject = Callable[[str], Any]
"""Return the object stored under a key."""


class StateStore:
    """Writes the controller's state to a storage whenever it changes. Runs on the controller's loop.

    All changes of one loop iteration are written together. Large immutable objects, such as specifications with user
    code, are written once and referenced by key.

    Args:
        storage: Where to write.
        snapshot: Returns the current record, given a function that returns the key of an object.
    """

    def __init__(
        self, storage: Storage, snapshot: Callable[[Callable[[Any], str]], ControllerRecord]
    ) -> None:
        self._storage = storage
        self._snapshot = snapshot
        # By the object's id(), which stays unique because the value keeps the object alive.
        self._keys: dict[int, tuple[str, Any]] = {}
        self._written: set[str] = set()
        self._last = b""
        self._is_dirty = False
        self._is_closed = False
        self._save_task: asyncio.Task[None] | None = None

    async def open(self) -> tuple[ControllerRecord, LoadObject]:
        """Return the last record, or an empty one, and a function that loads the objects it references."""
        entries = await self._storage.open()
        self._last = entries.pop(_RECORD_KEY, b"")
        self._written = set(entries)
        found: dict[str, Any] = {}

        def load_object(key: str) -> Any:
            if key not in found:
                found[key] = value = cloudpickle.loads(entries[key])
                self._keys[id(value)] = key, value
            return found[key]

        return decode(self._last) if self._last else ControllerRecord(), load_object

    def mark_changed(self) -> None:
        """Schedule a write of the state."""
        if self._is_closed:
            return
        self._is_dirty = True
        if self._save_task is None:
            self._save_task = asyncio.ensure_future(self._save())

    async def flush(self) -> None:
        """Wait until all changes so far are written; raise if writing failed."""
        self.mark_changed()
        while self._save_task is not None:
            await asyncio.shield(self._save_task)

    async def close(self) -> None:
        """Remove the stored state."""
        self._is_closed = True
        if self._save_task is not None:
            await asyncio.wait([self._save_task])
        await self._storage.close()

    async def _save(self) -> None:
        try:
            while self._is_dirty:
                self._is_dirty = False
                await self._write()
        except Exception:
            logger.exception("The controller could not store its state.")
            raise
        finally:
            self._save_task = None

    async def _write(self) -> None:
        used_keys: dict[int, tuple[str, Any]] = {}

        def key_of(value: Any) -> str:
            known = self._keys.get(id(value)) or used_keys.get(id(value)) or (new_id(16), value)
            used_keys[id(value)] = known
            return known[0]

        record = encode(self._snapshot(key_of))
        self._keys = used_keys
        if record == self._last:
            return
        keys = {key for key, _ in used_keys.values()}
        entries: dict[str, bytes | None] = {
            key: cloudpickle.dumps(value) for key, value in used_keys.values() if key not in self._written
        }
        entries[_RECORD_KEY] = record
        entries.update(dict.fromkeys(self._written - keys))  # after the record that no longer references them
        await self._storage.write(entries)
        self._written = keys
        self._last = record
