"""Starting and ending an ASGI application around its requests."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["Lifespan"]


class Lifespan:
    """Tells an application that it starts and that it ends, if it wants to know."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._state: dict[str, Any] = {}

    async def start(self) -> None:
        """Start the application; raises what it raises, or what it says went wrong."""
        self._task = asyncio.ensure_future(self._run())
        answer = await self._ask("startup")
        if answer is not None and answer["type"] == "lifespan.startup.failed":
            raise RuntimeError(f"The application failed to start: {answer.get('message', '')}")

    async def end(self) -> None:
        """End the application."""
        if self._task is not None and not self._task.done():
            await self._ask("shutdown")
            await asyncio.wait([self._task], timeout=1)

    async def _ask(self, what: str) -> dict[str, Any] | None:
        """Send an event and wait for the answer; None if the application does not care for such events."""
        assert self._task is not None
        self._events.put_nowait({"type": f"lifespan.{what}"})
        answer = asyncio.ensure_future(self._answers.get())
        await asyncio.wait([answer, self._task], return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        answer.cancel()
        return None

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self._state}
        try:
            await self._app(scope, self._events.get, self._answers.put)
        except Exception:
            # Raising is how an application says that it knows nothing of this; those that do say "failed" first.
            return
