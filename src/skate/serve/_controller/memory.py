"""Writes down what the controller knows, whenever that has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from skate import cloudpickle
from skate.serve._controller.ledger import Ledger
from skate.serve._controller.records import Record, decode, encode
from skate.serve._ids import new_id

__all__ = ["Memory", "Recall"]

logger = logging.getLogger("skate.serve")

_RECORD = "record"

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
