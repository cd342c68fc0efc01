"""Writes down what the controller knows, whenever that has changed."""

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
from skate.serve._controller.records import Record, decode, encode
from skate.serve._runtime.engine import actor_class, ask, ended
from skate.serve._runtime.ids import NAMESPACE, new_id
from skate.serve._runtime.stop_event import Ending
from skate.util._session import engine_name, session_folder

__all__ = ["LEDGER_NAME", "ActorLedger", "FolderLedger", "Ledger", "Memory", "Pages", "Recall", "open_ledger"]

logger = logging.getLogger("skate.serve")

_RECORD = "record"


class Ledger(Protocol):
    """Keeps pages of bytes. On the controller's loop."""

    async def open(self) -> dict[str, bytes]:
        """Return all pages that were written before."""

    async def write(self, pages: Mapping[str, bytes | None]) -> None:
        """Write pages, in their order; None in place of one removes it."""

    async def close(self) -> None:
        """Remove everything."""


def open_ledger() -> Ledger:
    """Return the ledger of this session."""
    folder = session_folder()
    if folder is not None:
        return FolderLedger(Path(folder, "serve"))
    return ActorLedger(_HEAD) if engine_name() == "ray" else _NoLedger()


class FolderLedger:
    """A file for each page, which is replaced as a whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def open(self) -> dict[str, bytes]:
        """Return all pages that were written before."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        return {path.name: path.read_bytes() for path in self._folder.iterdir() if path.suffix != _DRAFT}

    async def write(self, pages: Mapping[str, bytes | None]) -> None:
        """Write pages, in their order; None in place of one removes it."""
        for name, data in pages.items():
            path = self._folder / name
            if data is None:
                path.unlink(missing_ok=True)
            else:
                draft = path.with_suffix(_DRAFT)
                draft.write_bytes(data)
                os.replace(draft, path)

    async def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self._folder, ignore_errors=True)


class _NoLedger:
    """For a controller that has no process of its own, and so cannot die alone."""

    async def open(self) -> dict[str, bytes]:
        return {}

    async def write(self, pages: Mapping[str, bytes | None]) -> None:
        return

    async def close(self) -> None:
        return


class Pages:
    """The actor that keeps pages on a cluster."""

    def __init__(self) -> None:
        self._pages: dict[str, bytes] = {}
        self._ending = Ending()

    def read(self) -> dict[str, bytes]:
        """Return all pages."""
        return self._pages

    def write(self, pages: dict[str, bytes | None]) -> None:
        """Replace pages, and remove those that are None."""
        for name, data in pages.items():
            if data is None:
                self._pages.pop(name, None)
            else:
                self._pages[name] = data

    def until_stopped(self) -> bool:
        """Return when another controller waits for it; whoever waits learns at once if the process dies."""
        return self._ending.wait()


class ActorLedger:
    """Keeps pages in an actor. If that dies, another one gets all that the controller knows.

    Args:
        resources: Where the actor goes.
    """

    def __init__(self, resources: dict[str, float] | None = None) -> None:
        self._resources = resources or {}
        self._pages: dict[str, bytes] = {}
        self._actor: Any = None
        self._watching: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    async def open(self) -> dict[str, bytes]:
        """Return all pages that were written before."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                actor = await loop.run_in_executor(None, skate.get_actor, LEDGER_NAME, NAMESPACE)
                self._pages = dict(await ask(actor.read))
            except (ValueError, ActorDiedError) as error:
                logger.debug("Nothing is written down: %s", error)
                return {}
            except RayActorError as error:
                # It lives, and is out of reach: to go on as if nothing were written would end all that runs.
                logger.warning("The ledger's actor does not answer: %s", error)
                await asyncio.sleep(_AGAIN_S)
            else:
                self._follow(actor)
                return dict(self._pages)

    async def write(self, pages: Mapping[str, bytes | None]) -> None:
        """Write pages, in their order; None in place of one removes it."""
        for name, data in pages.items():
            if data is None:
                self._pages.pop(name, None)
            else:
                self._pages[name] = data
        async with self._turn:
            if self._actor is not None:
                try:
                    await ask(self._actor.write, dict(pages))
                    return
                except ActorDiedError:
                    self._actor = None
            await self._begin()

    async def _begin(self) -> None:
        made = actor_class(Pages, "ServeLedger").options(
            name=LEDGER_NAME,
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            resources=self._resources,
            max_concurrency=4,
        )
        actor = await asyncio.get_running_loop().run_in_executor(None, made.remote)
        await ask(actor.write, dict(self._pages))
        self._follow(actor)

    def _follow(self, actor: Any) -> None:
        self._actor = actor
        self._watching = asyncio.ensure_future(self._watch(actor))

    async def _watch(self, actor: Any) -> None:
        is_lost = False
        while self._actor is actor:
            try:
                if is_lost:
                    await self.write(dict(self._pages))  # to another one, unless it is there after all
                    is_lost = False
                else:
                    await ended(actor)
            except RayActorError as error:
                logger.warning("The ledger's actor is lost: %s", error)
                is_lost = True
                await asyncio.sleep(_AGAIN_S)

    async def close(self) -> None:
        """Remove everything."""
        if self._watching is not None:
            self._watching.cancel()
        if self._actor is not None:
            await asyncio.get_running_loop().run_in_executor(None, skate.kill, self._actor)


Recall = Callable[[str], Any]
"""Returns what was written under a key."""


class Memory:
    """Keeps the ledger up to date. On the controller's loop.

    Changes of one turn of the loop are written together. What is large and never changes, specifications with users'
    code, is written once and named by a key.

    Args:
        ledger: Where to write.
        describe: Returns the record as of now, given a function that returns the key of an object.
    """

    def __init__(self, ledger: Ledger, describe: Callable[[Callable[[Any], str]], Record]) -> None:
        self._ledger = ledger
        self._describe = describe
        self._keys: dict[
            int, tuple[str, Any]
        ] = {}  # by identity; the object stays, so that its identity does
        self._written: set[str] = set()
        self._last = b""
        self._is_due = False
        self._is_closed = False
        self._saving: asyncio.Task[None] | None = None

    async def open(self) -> tuple[Record, Recall]:
        """Return the record that was written last, an empty one if there is none, and how to read its keys."""
        pages = await self._ledger.open()
        self._last = pages.pop(_RECORD, b"")
        self._written = set(pages)
        found: dict[str, Any] = {}

        def recall(key: str) -> Any:
            if key not in found:
                found[key] = value = cloudpickle.loads(pages[key])
                self._keys[id(value)] = key, value
            return found[key]

        return decode(self._last) if self._last else Record(), recall

    def note(self) -> None:
        """Take note that something has changed."""
        if self._is_closed:
            return
        self._is_due = True
        if self._saving is None:
            self._saving = asyncio.ensure_future(self._save())

    async def saved(self) -> None:
        """Wait until all that has changed so far is written; raises if that failed."""
        self.note()
        while self._saving is not None:
            await asyncio.shield(self._saving)

    async def close(self) -> None:
        """Remove everything."""
        self._is_closed = True
        if self._saving is not None:
            await asyncio.wait([self._saving])
        await self._ledger.close()

    async def _save(self) -> None:
        try:
            while self._is_due:
                self._is_due = False
                await self._write()
        except Exception:
            logger.exception("The controller could not write down what it knows.")
            raise
        finally:
            self._saving = None

    async def _write(self) -> None:
        used: dict[int, tuple[str, Any]] = {}

        def key_of(value: Any) -> str:
            known = self._keys.get(id(value)) or used.get(id(value)) or (new_id(16), value)
            used[id(value)] = known
            return known[0]

        record = encode(self._describe(key_of))
        self._keys = used
        if record == self._last:
            return
        keys = {key for key, _ in used.values()}
        pages: dict[str, bytes | None] = {
            key: cloudpickle.dumps(value) for key, value in used.values() if key not in self._written
        }
        pages[_RECORD] = record
        pages.update(dict.fromkeys(self._written - keys))  # after the record that does not name them any more
        await self._ledger.write(pages)
        self._written = keys
        self._last = record


logger = logging.getLogger("skate.serve")

LEDGER_NAME = "SERVE_LEDGER_ACTOR"
_DRAFT = ".new"
_AGAIN_S = 0.1
_HEAD = {
    "node:__internal_head__": 0.001
}  # what goes there ends with the cluster, and not with one of its machines
