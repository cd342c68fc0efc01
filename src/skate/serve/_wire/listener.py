"""A listener for connections from other Serve processes, which have to know the secret."""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from skate.serve._wire.address import Address, machine_id, new_secret
from skate.serve._wire.frames import Frame, Hello, Nonce, Welcome
from skate.serve._wire.link import Link, compute_proof

__all__ = ["Listener"]

_HELLO_TIMEOUT_S = 10.0


class Listener:
    """A Unix socket, and optionally a TCP socket for other machines, whose callers authenticate first.

    Args:
        opened: Called with each authenticated link; it sets the link's callbacks.
        about: Returns the description of this process for callers.
        host: The address of this machine to listen on for other machines, or None.
    """

    def __init__(
        self,
        opened: Callable[[Link], None],
        about: Callable[[], dict[str, Any]] = dict,
        host: str | None = None,
    ) -> None:
        self._opened = opened
        self._about = about
        self._host = host
        self._secret = new_secret()
        self._servers: list[asyncio.AbstractServer] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.links: set[Link] = set()

    async def open(self) -> Address:
        """Listen, and return the address."""
        loop = asyncio.get_running_loop()
        unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if sys.platform == "linux":
            path = f"\0skate-serve-{secrets.token_hex(16)}"
        else:
            self._folder = tempfile.TemporaryDirectory(prefix="skate-serve-")
            path = os.path.join(self._folder.name, "socket")
        unix.bind(path)
        self._servers.append(await loop.create_unix_server(self._accept, sock=unix, backlog=1024))
        port = 0
        if self._host is not None:
            server = await loop.create_server(self._accept, self._host, 0, backlog=1024)
            self._servers.append(server)
            port = server.sockets[0].getsockname()[1]
        return Address(machine_id(), path, self._secret, self._host, port)

    async def close(self) -> None:
        """Stop listening, and close all links."""
        for server in self._servers:
            server.close()
        for link in list(self.links):
            link.close()
        self._servers.clear()
        if self._folder is not None:
            self._folder.cleanup()

    def _accept(self) -> Link:
        """Create the link of a new connection, which reads nothing before its caller has authenticated."""
        nonce = secrets.token_bytes(32)

        class PendingLink(Link):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                self.hello_timer = asyncio.get_running_loop().call_later(_HELLO_TIMEOUT_S, self.abort)
                self.send(Nonce(nonce))

            def connection_lost(self, error: Exception | None) -> None:
                self.hello_timer.cancel()
                super().connection_lost(error)

        def authenticate(link: Link, frame: Frame) -> None:
            assert isinstance(link, PendingLink)
            if not isinstance(frame, Hello) or not hmac.compare_digest(
                frame.proof, compute_proof(self._secret, nonce)
            ):
                link.abort()
                return
            link.hello_timer.cancel()
            link.name = frame.name
            link.closed = self.links.discard
            self.links.add(link)
            self._opened(link)
            link.send(Welcome(self._about()))

        return PendingLink(authenticate)
