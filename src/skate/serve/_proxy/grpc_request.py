"""Forward a gRPC call to a replica, and collect the response."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from skate._api.payloads import unpack
from skate.serve._router.requests import OutgoingRequest
from skate.serve._wire.frames import Chunk, Fail, Frame, Grant, Item, Rpc, RpcEnd
from skate.serve._wire.window import WINDOW_SIZE, Window

if TYPE_CHECKING:
    from skate.serve._router.connection import Connection

__all__ = ["GrpcRequest"]


class GrpcRequest(OutgoingRequest):
    """Send a gRPC call and the client's messages, and collect the answer's messages.

    Args:
        frame: The call. Its id is assigned here.
    """

    def __init__(self, frame: Rpc) -> None:
        super().__init__(frame.context)
        self._frame = frame
        self._window = Window(0)  # the replica grants parts when it begins
        self._messages: deque[bytes] = deque()
        self._taken = 0
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.end: RpcEnd | None = None

    def send(self, connection: Connection) -> None:
        """Send the call. The messages of a stream follow after the replica has begun."""
        frame = self._frame
        connection.link.send(
            Rpc(
                self.id,
                frame.context,
                frame.method,
                frame.codec,
                frame.metadata,
                frame.peer,
                frame.auth,
                frame.body,
                frame.more,
                frame.stream,
            )
        )

    @property
    def can_retry(self) -> bool:
        """Whether the call may be sent to another replica: it is complete here, and no answer has arrived."""
        return super().can_retry and not self._frame.more and not self._messages and not self._taken

    def receive(self, frame: Frame) -> bool:
        """Handle a part of the answer."""
        if isinstance(frame, Item):
            assert frame.value is not None
            self._messages.append(frame.value)
            self._wake()
        elif isinstance(frame, RpcEnd):
            self.end = frame
            self._wake()
            return True
        elif isinstance(frame, Fail):
            self.failed(unpack(frame.error))
            return True
        elif isinstance(frame, Grant):
            self._window.grant(frame.count)
        return False

    def failed(self, error: Exception) -> None:
        """Fail with an error."""
        self._error = error
        self._wake()

    async def feed(self, message: bytes, more: bool = True) -> None:
        """Send a message of the client's stream, or the end of the stream, when the window allows it."""
        await self._window.take()
        if self.connection is not None and not self.is_done:
            self.connection.link.send(Chunk(self.id, message, more))

    async def message(self) -> bytes | None:
        """Return the next message of a stream, or None at its end.

        Raises:
            Exception: The error that `failed` received.
        """
        while not self._messages:
            if self._error is not None:
                raise self._error
            if self.end is not None:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._taken += 1
        if self._taken % (WINDOW_SIZE // 2) == 0 and self.connection is not None and not self.is_done:
            self.connection.link.send(Grant(self.id, WINDOW_SIZE // 2))
        return self._messages.popleft()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
