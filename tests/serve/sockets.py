"""A raw HTTP client, which sends and receives any bytes."""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit


class RawClient:
    """One connection to a server."""

    def __init__(self, url: str, timeout: float = 8, context: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        assert parts.hostname
        self.socket: socket.socket = socket.create_connection((parts.hostname, parts.port), timeout)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname=parts.hostname)
        self._rest = b""

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: Any) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes; a server that has hung up is no error, since its answer is what counts."""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            self.socket.sendall(data)

    def read_all(self) -> bytes:
        """Read until the server closes the connection."""
        found = [self._rest]
        self._rest = b""
        with contextlib.suppress(ConnectionError):
            while part := self.socket.recv(65536):
                found.append(part)
        return b"".join(found)

    def read_until(self, end: bytes) -> bytes:
        """Read up to and including some bytes; less if the connection ends before."""
        data = self._rest
        while end not in data:
            part = self.socket.recv(65536)
            if not part:
                self._rest = b""
                return data
            data += part
        cut = data.index(end) + len(end)
        self._rest = data[cut:]
        return data[:cut]

    def answer(self) -> tuple[int, bytes]:
        """Read one response that says its length; return its status and its body."""
        head = self.read_until(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length:")
        )
        while len(self._rest) < length:
            part = self.socket.recv(65536)
            assert part, "the connection ended within a body"
            self._rest += part
        body, self._rest = self._rest[:length], self._rest[length:]
        return status_of(head), body


def status_of(answer: bytes) -> int:
    """Return the status of a response; 0 if there is none."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else 0


def ask(url: str, data: bytes, **options: Any) -> bytes:
    """Send bytes on a connection of their own, and return all that comes back until it is closed."""
    with RawClient(url, **options) as client:
        client.send(data)
        return client.read_all()
