"""Unix sockets in folders whose paths exceed the kernel's limit for socket addresses."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable

LONGEST_PATH = 107 if sys.platform == "linux" else 103  # bytes
DESCRIPTORS = "/proc/self/fd"


def bind(sock: socket.socket, path: str) -> None:
    """Bind a socket to a path of any length."""
    _by_short_path(sock.bind, path)


def connect(sock: socket.socket, path: str) -> None:
    """Connect a socket to a path of any length."""
    _by_short_path(sock.connect, path)


def _by_short_path(act: Callable[[str], None], path: str) -> None:
    if len(os.fsencode(path)) <= LONGEST_PATH:
        act(path)
        return
    if not os.path.isdir(DESCRIPTORS):
        raise OSError(f"{path} is too long for a socket. Set SKATE_TMPDIR to a folder with a shorter path.")
    folder, name = os.path.split(path)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # The kernel follows this link to the folder, however long its path is.
        act(f"{DESCRIPTORS}/{descriptor}/{name}")
    finally:
        os.close(descriptor)
