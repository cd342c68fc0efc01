"""Where the controller writes down what it has to know when it is started again: it lasts as long as the session.

On one machine that is a folder of the session. On a cluster, where the next controller may be on another machine, it is
an actor that does nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import skate
from skate.exceptions import ActorDiedError, RayActorError
from skate.serve._ending import Ending
from skate.serve._ids import NAMESPACE
from skate.serve._process import actor_class, ask, ended
from skate.util._session import engine_name, session_folder

__all__ = ["LEDGER_NAME", "ActorLedger", "FolderLedger", "Ledger", "Pages", "open_ledger"]

logger = logging.getLogger("skate.serve")

LEDGER_NAME = "SERVE_LEDGER_ACTOR"
_DRAFT = ".new"
_AGAIN_S = 0.1
_HEAD = {
    "node:__internal_head__": 0.001
}  # what goes there ends with the cluster, and not with one of its machines


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
