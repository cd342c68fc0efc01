"""Messages from user code in workers to the test, by a named pipe: also from a process that dies right after."""

from __future__ import annotations

import os
import select
from pathlib import Path

EVENT_TIMEOUT_S = 45.0


class Mailbox:
    """A named pipe that the test reads; workers know it by its path."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        os.mkfifo(path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)  # read and write: never at its end
        self._rest = b""

    def next(self) -> str:
        """Wait for the next line."""
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._descriptor], [], [], EVENT_TIMEOUT_S)
            assert ready, "no message came"
            self._rest += os.read(self._descriptor, 4096)
        line, self._rest = self._rest.split(b"\n", 1)
        return line.decode()

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._descriptor)


def tell(path: str, text: object) -> None:
    """Send a line to the mailbox with this path."""
    descriptor = os.open(path, os.O_WRONLY)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)
