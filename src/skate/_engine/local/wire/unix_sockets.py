"""Unix sockets in folders whose paths exceed the kernel's limit for socket addresses."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from skate._engine.common.platform import system


def bind(sock: socket.socket, path: str) -> None:
    """Bind a socket to a path of any length."""
    _by_short_path(sock.bind, path)


def connect(sock: socket.socket, path: str) -> None:
    """Connect a socket to a path of any length."""
    _by_short_path(sock.connect, path)


def _by_short_path(act: Callable[[str], None], path: str) -> None:
    if len(os.fsencode(path)) <= system.LONGEST_SOCKET_PATH:
        act(path)
        return
    folder, name = os.path.split(path)
    with system.short_path(folder) as short:
        act(f"{short}/{name}")
