"""Calls of actors: a second connection to the node, as a driver that no list shows, opened when it is needed.

Reading the state needs no job, and an observer cannot have one. The controller of Serve and the supervisors of jobs
are actors, and only a driver can call or create them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TypeVar

from skate._api import nodes

__all__ = ["Caller"]

T = TypeVar("T")


class Caller:
    """Runs functions in one thread, with the session of a node."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "skate-dashboard-calls")
        self._joined = ExitStack()
        self._joined_as: tuple[str, bool] | None = None  # the session, and whether `ray` means Skate

    async def call(self, session: str, function: Callable[[], T], *, as_ray: bool = False) -> T:
        """Call a function with the session in this folder.

        Args:
            session: The folder.
            function: The function.
            as_ray: Whether `import ray` imports Skate in the workers of actors that the function creates.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._call, (session, as_ray), function)

    def _call(self, wanted: tuple[str, bool], function: Callable[[], T]) -> T:
        if self._joined_as != wanted:
            self._leave()
            session, as_ray = wanted
            self._joined.enter_context(nodes.join(session, as_ray=as_ray))
            self._joined_as = wanted
        return function()

    def _leave(self) -> None:
        self._joined_as = None
        self._joined.pop_all().close()

    async def close(self) -> None:
        """Close the connection."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._leave)
        self._thread.shutdown(wait=False, cancel_futures=True)
