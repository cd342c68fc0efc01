"""A connection between two Serve processes, which batches frames."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import socket
import struct
from collections.abc import Callable
from typing import Any

from skate.serve._wire.address import Address
from skate.serve._wire.frames import Frame, Hello, Nonce, Welcome, decode, encode

__all__ = ["Link", "LinkClosed", "compute_proof", "connect"]

logger = logging.getLogger("skate.serve")

_SIZE = struct.Struct("<I")
MAX_FRAME_BYTES = 1 << 30
_CONNECT_TIMEOUT_S = 10.0


class LinkClosed(ConnectionError):
    """The peer closed the connection, or refused it."""


def compute_proof(secret: bytes, nonce: bytes) -> bytes:
    """Return the answer to a challenge, which requires the secret."""
    return hmac.digest(secret, nonce, hashlib.sha256)


class Link(asyncio.Protocol):
    """Send and receive frames.

    Frames that are sent in one iteration of the event loop leave in one write. `receive` is called for each incoming
    frame, and `closed` once, when the connection ends for any reason. Everything runs on one event loop.
    """

    def __init__(
        self,
        receive: Callable[[Link, Frame], None],
        closed: Callable[[Link], None] | None = None,
        name: str = "",
    ) -> None:
        self.receive = receive
        self.closed = closed
        self.name = name
        self.about: dict[str, Any] = {}
        self.is_open = False
        self._outgoing: list[bytes] = []
        self._incoming = bytearray()
        self._drained: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._descriptor = -1

    def send(self, frame: Frame, *, now: bool = False) -> None:
        """Send a frame at the end of this iteration of the loop; do nothing if the link is closed.

        Args:
            frame: The frame.
            now: Write immediately, because no other frame is expected in this iteration.
        """
        if not self.is_open:
            return
        data = encode(frame)
        outgoing = self._outgoing
        if now and not outgoing:
            self._transport.write(_SIZE.pack(len(data)) + data)  # type: ignore[union-attr]  # set when the link opens
            return
        if not outgoing:
            self._loop.call_soon(self._flush)  # type: ignore[union-attr]
        outgoing.append(_SIZE.pack(len(data)))
        outgoing.append(data)

    def send_unbuffered(self, frame: Frame) -> None:
        """Write a frame, and the buffered ones, to the socket before returning.

        Used for parts of a stream: the code that produces the next part may block the loop, and transports write at the
        end of an iteration. The transport buffers what the socket cannot take.
        """
        if not self.is_open:
            return
        data = encode(frame)
        outgoing = self._outgoing
        outgoing.append(_SIZE.pack(len(data)))
        outgoing.append(data)
        data = b"".join(outgoing)
        outgoing.clear()
        transport = self._transport
        assert transport is not None, "the link is open"
        if not transport.get_write_buffer_size() and not transport.is_closing():
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:
                pass  # the peer reads slowly
            except OSError:
                return  # the connection is broken, and the loop is about to report it
        if data:
            transport.write(data)

    @property
    def is_congested(self) -> bool:
        """Whether the peer reads more slowly than this side writes."""
        return self._drained is not None

    async def drain(self) -> None:
        """Wait until the peer has read most of the sent data."""
        while self._drained is not None:
            await asyncio.shield(self._drained)

    def close(self) -> None:
        """Write the buffered frames, and close."""
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        """Close without writing the buffered frames."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open the link. The event loop calls it."""
        self._transport = transport  # type: ignore[assignment]  # it is a stream transport
        self._descriptor = transport.get_extra_info("socket").fileno()
        self._loop = asyncio.get_running_loop()
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        """Split bytes into frames. The event loop calls it."""
        kept = self._incoming
        if kept:
            kept += data
            if len(kept) < _SIZE.size or len(kept) < _SIZE.size + _SIZE.unpack_from(kept)[0]:
                return  # a large frame arrives in many parts, and is parsed once
            data = bytes(kept)
            kept.clear()
        view = memoryview(data)
        position, end = 0, len(data)
        try:
            while end - position >= 4:
                (size,) = _SIZE.unpack_from(data, position)
                if size > MAX_FRAME_BYTES:
                    raise ValueError(f"a frame of {size} bytes")
                if end - position - 4 < size:
                    break
                position += 4
                frame = decode(view[position : position + size])
                position += size
                self.receive(self, frame)
        except Exception:
            logger.exception("The link %s received an invalid frame, and is closed.", self.name)
            self.abort()
            return
        if position < end:
            kept += view[position:]

    def pause_writing(self) -> None:
        """Handle that the write buffer is full. The event loop calls it."""
        if self._drained is None and self._loop is not None:
            self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        """Handle that the write buffer has space. The event loop calls it."""
        drain, self._drained = self._drained, None
        if drain is not None and not drain.done():
            drain.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Close the link. The event loop calls it."""
        self.is_open = False
        self._outgoing.clear()
        self.resume_writing()
        if self.closed is not None:
            self.closed(self)

    def _flush(self) -> None:
        if self._outgoing and self._transport is not None:
            self._transport.write(b"".join(self._outgoing))
            self._outgoing.clear()


async def connect(
    address: Address,
    receive: Callable[[Link, Frame], None],
    closed: Callable[[Link], None] | None = None,
    name: str = "",
) -> Link:
    """Connect to a listener and authenticate.

    Raises:
        LinkClosed: If the process does not listen any more.
    """
    loop = asyncio.get_running_loop()
    welcome: asyncio.Future[dict[str, Any]] = loop.create_future()

    def handshake(link: Link, frame: Frame) -> None:
        if isinstance(frame, Nonce):
            link.send(Hello(compute_proof(address.secret, frame.nonce), name))
        elif isinstance(frame, Welcome):
            link.about = frame.about
            link.receive, link.closed = receive, closed
            if not welcome.done():
                welcome.set_result(frame.about)

    def refused(_: Link) -> None:
        if not welcome.done():
            welcome.set_exception(LinkClosed("the process closed the connection"))

    def protocol() -> Link:
        return Link(handshake, refused, name)

    link: Link
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            if address.is_local:
                here = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                here.setblocking(False)
                try:
                    # uvloop's own connect does not support abstract sockets.
                    await loop.sock_connect(here, address.path)
                    _, link = await loop.create_unix_connection(protocol, sock=here)
                except BaseException:
                    here.close()
                    raise
            elif address.host is not None:
                _, link = await loop.create_connection(protocol, address.host, address.port)
            else:
                raise LinkClosed("the process listens on its own machine only")
            try:
                await welcome
            except BaseException:
                link.abort()
                raise
    except TimeoutError:
        raise LinkClosed(f"no answer within {_CONNECT_TIMEOUT_S:g} s") from None
    except OSError as error:
        raise LinkClosed(str(error)) from error
    return link
