"""A terminal to run programs in, with a key for Ctrl-C."""

from __future__ import annotations

import os
import threading

from tests.chaos import attacks

INTERRUPT = b"\x03"


class Terminal:
    """A pseudo-terminal; what a program prints on it is kept."""

    def __init__(self) -> None:
        self._master, self.slave = os.openpty()
        self._text = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # the last program has closed it
                return
            if not data:
                return
            self._text += data

    def press_ctrl_c(self) -> None:
        """Send SIGINT to the foreground process group, as the keyboard does."""
        attacks.record()
        os.write(self._master, INTERRUPT)

    def close(self) -> str:
        """Return everything that was printed, after the programs have ended."""
        os.close(self.slave)
        self._reader.join(10)
        os.close(self._master)
        return self._text.decode("utf-8", "replace").replace("\r\n", "\n")
