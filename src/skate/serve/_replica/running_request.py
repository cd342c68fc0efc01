"""A request that runs in a replica."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from skate._api.payloads import pack
from skate.serve._wire.frames import Cancel, Chunk, Context, Fail, Frame, Grant, Item, ResponsePart
from skate.serve._wire.link import Link
from skate.serve._wire.window import Window
from skate.serve.context import _RequestContext

if TYPE_CHECKING:
    from skate.serve._replica.server import RequestServer

__all__ = ["RunningRequest"]


class RunningRequest:
    """A request that runs in this replica."""

    __slots__ = (
        "_window",
        "began",
        "chunks",
        "context",
        "error",
        "has_started",
        "id",
        "is_answered",
        "is_cancelled",
        "is_stopped",
        "link",
        "status",
        "task",
    )

    def __init__(self, link: Link, id: int, context: Context) -> None:
        self.began = time.perf_counter()
        self.status = 0  # the HTTP status, once it is known
        self.error: BaseException | None = None
        self.link = link
        self.id = id
        self.task: asyncio.Task[None] | None = None
        self._window: Window | None = None  # created on demand, because most answers are one part
        self.chunks: asyncio.Queue[Chunk] | None = None
        self.is_answered = False
        self.has_started = False
        self.is_cancelled = False  # cancelled before it started
        self.is_stopped = False  # cancelled because the replica stops
        self.context = _RequestContext(
            route=context.route,
            request_id=context.request_id,
            app_name=context.app,
            multiplexed_model_id=context.model,
            session_id=context.session,
            retry=context.retry,
            trace=context.trace,
        )

    @property
    def window(self) -> Window:
        """The flow-control window of the answer."""
        if self._window is None:
            self._window = Window()
        return self._window

    def send_part(self, frame: Item | ResponsePart) -> None:
        """Send a part of a streamed answer."""
        if self.context.batches_parts:
            self.link.send(frame)
        else:
            self.link.send_unbuffered(frame)

    def handle_frame(self, frame: Frame) -> None:
        """Handle a further frame from the caller."""
        if isinstance(frame, Chunk):
            self.feed(frame)
        elif isinstance(frame, Grant):
            self.window.grant(frame.count)
        elif isinstance(frame, Cancel):
            self.cancel()

    def cancel(self) -> None:
        """Cancel the request."""
        if not self.has_started:
            # A task that is cancelled before its first step runs no code, not even its cleanup.
            self.is_cancelled = True
        elif self.task is not None:
            self.task.cancel()

    def feed(self, chunk: Chunk) -> None:
        """Store a part of the request's body."""
        if self.chunks is None:
            self.chunks = asyncio.Queue()
        self.chunks.put_nowait(chunk)

    async def next_chunk(self) -> Chunk:
        """Return the next part of the request's body."""
        if self.chunks is None:
            self.chunks = asyncio.Queue()
        chunk = await self.chunks.get()
        self.link.send(Grant(self.id, 1))
        return chunk

    def finish(self, server: RequestServer, error: Exception) -> None:
        """Answer with an error, unless the request has been answered."""
        self.error = error
        if self.is_answered:
            return
        self.is_answered = True
        self.link.send(Fail(self.id, server.load - 1, _pack_error(error)))


def _pack_error(error: Exception) -> bytes:
    try:
        packed = pack(error)
    except Exception as unpicklable:
        packed = None
        error = RuntimeError(
            f"{type(error).__name__}: {error} (the error itself cannot be pickled: {unpicklable})"
        )
    # Send an error that is too large, or contains references, as text.
    return packed or pack(RuntimeError(f"{type(error).__name__}: {str(error)[:10_000]}")) or b""
