"""The title of a worker process in `ps`, `top` and py-spy: the task or method that it runs.

The title replaces the command line in the memory that the kernel reads, which takes less than a microsecond and no
system call. If that memory is not found, the command line remains.
"""

from __future__ import annotations

import ctypes

from skate._engine.common.platform import system

LONGEST = 256  # bytes
MAX_CACHED = 1000  # titles
IDLE = "IDLE"


class ProcessTitle:
    """Shows names after a prefix: ``ray::f``."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._start, self._size = system.command_line_memory()
        self._cache: dict[str, bytes] = {}
        self._shown: bytes | None = None

    def show(self, name: str) -> None:
        """Set the title to `name`."""
        title = self._cache.get(name) or self._prepare(name)
        if title is not self._shown:
            self._shown = title
            ctypes.memmove(self._start, title, len(title))

    def _prepare(self, name: str) -> bytes:
        if len(self._cache) >= MAX_CACHED:
            self._cache.clear()
        if self._shown is None and self._size:
            ctypes.memset(self._start, 0, self._size)  # the command line, which may be longer than a title
        size = min(self._size, LONGEST)
        text = f"{self._prefix}::{name}".encode()[: max(size - 1, 0)]
        padded = self._cache[name] = text.ljust(size, b"\0")
        return padded
