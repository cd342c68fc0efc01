"""The standard output of a worker, written line by line, including an unfinished last line."""

from __future__ import annotations

import io
import os
import sys

NAME_MARK = (
    "\x01skate-name:"  # prefix of a line that sets the name shown before the later lines of the stream
)


class LineWriter(io.TextIOWrapper):
    """Writes text to a descriptor, line by line, and tracks whether a line is unfinished."""

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
        """Finish an unfinished line, so that it is shown."""
        if self.unfinished:
            self.write("\n")


def end_lines() -> None:
    """Finish the lines that a task has left unfinished."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, LineWriter) and stream.unfinished:
            stream.end_line()


def announce_name(name: str) -> None:
    """Show the name of an actor, if it has one, before the lines that its process prints, as in Ray."""
    if not name:
        return
    line = f"{NAME_MARK}{name}\n".encode()
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        stream.flush()
        os.write(descriptor, line)
