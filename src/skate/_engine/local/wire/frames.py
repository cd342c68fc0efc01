"""Frames on unix sockets: several messages per system call, and no blocking write."""

from __future__ import annotations

import socket
import struct
from collections import deque
from typing import Any, TypeVar

import msgspec

from skate._engine.local.wire.messages import WIRE

T = TypeVar("T")

_HEADER = struct.Struct("<I")
RECEIVE = 1 << 18  # bytes that are received at a time, at most

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[WIRE])
# Receive buffers for reuse: a new one for each message would cost more than the message.
_spare: list[bytearray] = []


class Closed(ConnectionError):
    """The peer has closed the connection."""


class Connection:
    """A non-blocking stream of messages.

    `post` queues a message, `flush` writes queued messages, and `receive` reads those that have arrived. Data that
    the kernel does not accept stays in the buffer; `backlog` is its size, and the owner calls `flush` again when the
    socket is writable.
    """

    __slots__ = ("_buffer", "_outgoing", "_queue", "backlog", "label", "sent_at", "sock", "turn", "writing")

    def __init__(self, sock: socket.socket, label: Any = None) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.label = label
        self.backlog = 0
        self.sent_at = 0.0  # when the last message was sent, to detect bursts
        self.turn = -1  # and in which turn of the sender
        self.writing = False  # whether the owner polls for writability
        self._queue: list[Any] = []
        self._outgoing: deque[bytes | memoryview] = deque()
        self._buffer = bytearray()

    def fileno(self) -> int:
        """Return the socket's descriptor, -1 when closed."""
        return self.sock.fileno()

    def post(self, message: Any) -> list[Any]:
        """Queue a message for the next flush; return the queue."""
        queue = self._queue
        queue.append(message)
        return queue

    def last(self, kind: type[T]) -> T | None:
        """Return the last queued message if it is of this type, so that it can be extended."""
        if self._queue:
            message = self._queue[-1]
            if type(message) is kind:
                return message
        return None

    def send(self, message: Any) -> None:
        """Queue a message and flush."""
        self._queue.append(message)
        self.flush()

    def flush(self) -> bool:
        """Write queued messages; return whether the kernel has accepted all of them."""
        if self._queue:
            queue, self._queue = self._queue, []
            body = _encoder.encode(queue)
            frame: bytes | memoryview = _HEADER.pack(len(body)) + body
            if not self._outgoing:
                try:
                    sent = self.sock.send(frame)
                except BlockingIOError:
                    sent = 0
                except OSError as error:
                    raise Closed(str(error)) from error
                if sent == len(frame):
                    return True
                frame = memoryview(frame)[sent:]
            self._outgoing.append(frame)
            self.backlog += len(frame)
        return self._drain()

    def _drain(self) -> bool:
        outgoing = self._outgoing
        while outgoing:
            head = outgoing[0]
            try:
                sent = self.sock.send(head)
            except BlockingIOError:
                return False
            except OSError as error:
                raise Closed(str(error)) from error
            self.backlog -= sent
            if sent == len(head):
                outgoing.popleft()
            else:
                outgoing[0] = memoryview(head)[sent:]
        return True

    def receive(self, most: int = RECEIVE) -> list[Any]:
        """Return the complete messages that have arrived; raise Closed at the end, or for invalid data.

        Args:
            most: The number of bytes to receive, at most `RECEIVE`.
        """
        scratch = _spare.pop() if _spare else bytearray(RECEIVE)
        try:
            size = self.sock.recv_into(scratch, most)
            if not size:
                raise Closed("end of stream")
            return self._decode(memoryview(scratch)[:size])
        except BlockingIOError:
            return []
        except OSError as error:
            raise Closed(str(error)) from error
        except msgspec.MsgspecError as error:
            # For example from a forked process of the user, which writes to its parent's sockets.
            raise Closed(f"not a message: {error}") from error
        finally:
            _spare.append(scratch)

    def receive_rest(self) -> list[Any]:
        """Return all messages that have arrived from a peer that is gone."""
        messages: list[Any] = []
        try:
            while chunk := self.sock.recv(RECEIVE):
                messages += self._decode(memoryview(chunk))
        except (OSError, msgspec.MsgspecError):  # no more data, or invalid data
            return messages
        return messages

    def _decode(self, chunk: memoryview) -> list[Any]:
        buffer = self._buffer
        if not buffer:
            # The common case: whole frames in one chunk, decoded without another copy.
            size = len(chunk)
            if size >= 4:
                (need,) = _HEADER.unpack_from(chunk)
                if size == need + 4:
                    return _decoder.decode(chunk[4:])
        buffer += chunk
        messages: list[Any] = []
        position = 0
        end = len(buffer)
        while end - position >= 4:
            (need,) = _HEADER.unpack_from(buffer, position)
            if end - position - 4 < need:
                break
            with memoryview(buffer) as view:
                messages += _decoder.decode(view[position + 4 : position + 4 + need])
            position += 4 + need
        if position:
            del buffer[:position]
        return messages

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()


def encode_frame(messages: list[Any]) -> bytes:
    """Return a frame with these messages, for code that writes to a socket directly."""
    body = _encoder.encode(messages)
    return _HEADER.pack(len(body)) + body


def pack(value: Any) -> bytes:
    """Return plain data as MessagePack."""
    return _encoder.encode(value)


def unpack(data: bytes) -> Any:
    """Return the plain data that was passed to `pack`."""
    return msgspec.msgpack.decode(data)
