"""A pseudo-terminal to run programs in, and the screen that a user would see."""

from __future__ import annotations

import codecs
import errno
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Generator, Mapping
from pathlib import Path

_QUIET_S = 0.02  # without output: the terminal passes on what the program writes at once in several pieces
_SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


class Screen:
    """The lines of a terminal without a height limit. It knows the sequences that the displays use, and no others."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.lines = [""]
        self._row = self._column = 0
        self._rest = ""

    def feed(self, text: str) -> None:
        """Write text to the screen, with its control sequences."""
        text, self._rest = self._rest + text, ""
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                found = _SEQUENCE.match(text, at)
                if found is None:
                    assert len(text) - at < 16, f"unknown sequence {text[at : at + 16]!r}"
                    self._rest = text[at:]  # the sequence is not complete yet
                    return
                self._control(found[1], found[2])
                at = found.end()
                continue
            self._put(text[at])
            at += 1

    def _control(self, argument: str, kind: str) -> None:
        if kind == "A":
            self._row -= int(argument or 1)
            assert self._row >= 0, "the cursor moved above the first line"
        elif kind == "J":
            assert argument in ("", "0")
            del self.lines[self._row + 1 :]
            self.lines[self._row] = self.lines[self._row][: self._column]
        else:
            assert kind == "m", f"unknown sequence {kind!r}"

    def _put(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._next_row()
        else:
            if self._column == self.columns:
                self._next_row()
                self._column = 0
            line = self.lines[self._row].ljust(self._column)
            self.lines[self._row] = line[: self._column] + character + line[self._column + 1 :]
            self._column += 1

    def _next_row(self) -> None:
        self._row += 1
        if self._row == len(self.lines):
            self.lines.append("")

    @property
    def text(self) -> str:
        """All lines, without spaces at their ends."""
        return "\n".join(line.rstrip() for line in self.lines)


def run_in_terminal(
    program: Path, *, columns: int = 80, env: Mapping[str, str] | None = None, timeout: float = 60
) -> Generator[str, str | None, None]:
    """Run a Python program in a pseudo-terminal; yield the screen whenever the output pauses, and at the end.

    Text that is sent to the generator is typed.

    Args:
        program: The file to run.
        columns: The width of the terminal.
        env: Variables of its environment, added to those of this process.
        timeout: Seconds after which the program is killed.
    """
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    variables = {**os.environ, "TERM": "xterm-256color", **(env or {})}
    process = subprocess.Popen(
        ["timeout", "--foreground", str(timeout), sys.executable, str(program)],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=variables,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # the terminal controls the process
    )
    os.close(follower)
    screen = Screen(columns)
    try:
        decode = codecs.getincrementaldecoder("utf-8")().decode
        while data := _read(leader):
            screen.feed(decode(data))
            if not select.select([leader], [], [], _QUIET_S)[0]:
                while typed := (yield screen.text):
                    os.write(leader, typed.encode())
        yield screen.text
    finally:
        os.close(leader)
        assert process.wait() == 0


def _read(leader: int) -> bytes:
    try:
        return os.read(leader, 1 << 16)
    except OSError as error:
        if error.errno == errno.EIO:  # the program has ended
            return b""
        raise
