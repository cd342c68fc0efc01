"""Standard output of a worker: sent line by line, and the last line also when it does not end."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

NAME_MARK = "\x01skate-name:"  # begins a line that names the process in front of its later lines
_LONGEST_NAME = 200


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


def announce_repr(instance: object, class_name: str) -> None:
    """Show the `repr` of an actor that defines one in front of the lines that its process prints, as in Ray."""
    kind: Any = type(instance)
    if kind.__repr__ is object.__repr__:
        return
    try:
        name = " ".join(repr(instance).split())[:_LONGEST_NAME]
    except Exception:
        import logging

        logging.getLogger("skate").exception("__repr__ of %s failed", class_name)
        return
    sys.stdout.flush()
    os.write(1, f"{NAME_MARK}{name}\n".encode())
