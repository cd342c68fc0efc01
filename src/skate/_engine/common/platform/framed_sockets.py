"""Messages on stream sockets, for systems without sequenced packets between processes."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from typing import Any

_LENGTH = struct.Struct("<I")


class FramedSocket(socket.socket):
    """A stream socket that preserves the boundaries of messages, with a length in front of each.

    `socket.send_fds` and `socket.recv_fds` work on it. Once a part of a message has arrived, reading waits for the
    rest, which the sender is about to send.
    """

    def send(self, data: Any, flags: int = 0, /) -> int:
        """Send one message."""
        return self.sendmsg([data], [], flags)

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        """Send one message."""
        self.sendmsg([data], [], flags)

    def sendmsg(
        self, buffers: Iterable[Any], ancdata: Iterable[Any] = (), flags: int = 0, address: Any = None, /
    ) -> int:
        """Send one message, made of all the buffers."""
        body = b"".join(buffers)
        frame = memoryview(_LENGTH.pack(len(body)) + body)
        sent = super().sendmsg([frame], ancdata, flags)
        if sent < len(frame):
            super().sendall(frame[sent:])
        return len(body)

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """Return the next message, b"" at the end."""
        return self.recvmsg(bufsize, 0, flags)[0]

    def recvmsg(
        self, bufsize: int, ancbufsize: int = 0, flags: int = 0, /
    ) -> tuple[bytes, list[tuple[int, int, bytes]], int, Any]:
        """Return the next message with its ancillary data, b"" at the end."""
        # Reading no more than the length keeps the descriptors of two messages apart: they come with the first byte.
        begin, ancillary, found, address = super().recvmsg(_LENGTH.size, ancbufsize, flags)
        if not begin:
            return b"", ancillary, found, address
        head = self._complete(bytearray(begin), _LENGTH.size)
        body = self._complete(bytearray(), _LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else b""
        return bytes(body), ancillary, found, address

    def _complete(self, data: bytearray, size: int) -> bytearray:
        """Return `data` with the bytes up to `size`; nothing if the sender died before it had sent them."""
        while len(data) < size:
            part = super().recv(size - len(data))
            if not part:
                return bytearray()
            data += part
        return data
