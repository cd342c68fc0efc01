"""What a replica's code prints, as records of the logger: for those who want one file and a quiet terminal."""

from __future__ import annotations

import contextlib
import io
import logging

__all__ = ["PrintsToLog"]


class _ToLog(io.TextIOBase):
    """A stream that logs what is written to it, a record for each write, to the file alone."""

    encoding = "utf-8"

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def writable(self) -> bool:
        """Return that it can be written to."""
        return True

    def write(self, text: str) -> int:
        """Log a text that is more than the end of a line."""
        if text.strip():
            self._logger.info(text, extra={"log_to_stderr": False})
        return len(text)


class PrintsToLog(contextlib.ExitStack):
    """Has standard output and standard error of this process logged until it is closed.

    Args:
        logger: Where to.
    """

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__()
        self.enter_context(contextlib.redirect_stdout(_ToLog(logger)))
        self.enter_context(contextlib.redirect_stderr(_ToLog(logger)))
