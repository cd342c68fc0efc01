"""Standard output of a worker: sent line by line, and the last line also when it does not end."""

from __future__ import annotations

import io
import sys


class LineWriter(io.TextIOWrapper):
    """Writes text to a descriptor, line by line, and knows whether a line is unfinished."""

    def __init__(self, descriptor: int) -> None:
        raw = open(descriptor, "wb", closefd=False)  # noqa: SIM115 - lives as long as the process
        super().__init__(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)
        self.unfinished = False

    def write(self, text: str) -> int:
        """Write text."""
        if text:
            self.unfinished = text[-1] != "\n"
        return super().write(text)

    def end_line(self) -> None:
        """Finish the line that was begun, so that it is shown."""
        if self.unfinished:
            self.write("\n")


def end_lines() -> None:
    """Show what the task that just ended has printed without a newline."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, LineWriter) and stream.unfinished:
            stream.end_line()
