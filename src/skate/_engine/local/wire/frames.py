"""Frames on unix sockets: many small messages to a system call, and never a blocking write."""

from __future__ import annotations

import socket
import struct
from collections import deque
from typing import Any

import msgspec

from skate._engine.local.wire.messages import WIRE

_HEADER = struct.Struct("<I")
_RECEIVE = 1 << 18

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[WIRE])
_spare: list[
    bytearray
] = []  # buffers to receive into: a new one for each message would cost more than the message


class Closed(ConnectionError):
    """The other side has closed the connection."""


class Connection:
    """A non-blocking stream of messages.

    `post` queues a message, `flush` writes what is queued, `receive` reads what has arrived. A write
    that the kernel does not take stays in the buffer; `backlog` tells how much, and whoever polls
    the socket for writing calls `flush` again.
    """

    __slots__ = ("_buffer", "_outgoing", "_queue", "backlog", "label", "sent_at", "sock", "turn", "writing")

    def __init__(self, sock: socket.socket, label: Any = None) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.label = label
        self.backlog = 0
        self.sent_at = 0.0  # when the last message was to be sent, for those who gather bursts
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

    def send(self, message: Any) -> None:
        """Queue a message and flush."""
        self._queue.append(message)
        self.flush()

    def flush(self) -> bool:
        """Write what is queued; return False when some of it is still waiting for the kernel."""
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

    def receive(self) -> list[Any]:
        """Return the messages that have arrived in full; raise Closed at the end of the stream, or of sense."""
        scratch = _spare.pop() if _spare else bytearray(_RECEIVE)
        try:
            size = self.sock.recv_into(scratch)
            if not size:
                raise Closed("end of stream")
            return self._decode(memoryview(scratch)[:size])
        except BlockingIOError:
            return []
        except OSError as error:
            raise Closed(str(error)) from error
        except msgspec.MsgspecError as error:
            # For example of a process that user code has forked, and that writes to its parent's sockets.
            raise Closed(f"not a message: {error}") from error
        finally:
            _spare.append(scratch)

    def receive_rest(self) -> list[Any]:
        """Return all messages that have arrived, from an end that is gone."""
        messages: list[Any] = []
        try:
            while chunk := self.sock.recv(_RECEIVE):
                messages += self._decode(memoryview(chunk))
        except (OSError, msgspec.MsgspecError):  # nothing more has come, or nothing of sense
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
    """Return a frame with these messages, for those who write to a socket themselves."""
    body = _encoder.encode(messages)
    return _HEADER.pack(len(body)) + body


def pack(value: Any) -> bytes:
    """Return plain data as MessagePack."""
    return _encoder.encode(value)


def unpack(data: bytes) -> Any:
    """Return the plain data that `pack` took."""
    return msgspec.msgpack.decode(data)
