"""Progress on a terminal: a block of lines below the output of the program, which is redrawn in place.

All output of the process to the same terminal, including the lines of workers and of `logging`, goes through the method
`write` of `sys.stdout` or `sys.stderr`. While a block is shown, that method removes the block first, so that the text
appears above it, and the block is drawn again after the next complete line.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TextIO

from skate._api.progress.view import Bar, Table, View, format_duration

if TYPE_CHECKING:
    from rich.console import RenderableType

_BAR_WIDTH = 24
_MIN_INTERVAL_S = 0.1  # between two drawings that output of the program causes
_DEFAULT_SIZE = os.terminal_size((80, 24))  # if the terminal does not report its size


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether lines of a stream can be redrawn. A program can be started without the stream."""
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # it is closed
        return False


class Terminal:
    """Draws views on the terminal of the standard error stream.

    Args:
        stream: Where to draw.
        lock: Held by a thread while it draws or writes.
    """

    def __init__(self, stream: TextIO, lock: threading.RLock) -> None:
        self._stream = stream
        self._write = stream.write  # without a watch
        self._lock = lock
        self._lines: list[tuple[str, int]] = []  # of the block, with their widths
        self._is_drawn = False
        self._drawn_at = 0.0
        self._has_partial_line = self._knows_column = False
        self._restore: list[Callable[[], None]] = []

    def open(self) -> None:
        """Watch what the process writes to the terminal."""
        for stream in {id(each): each for each in (self._stream, sys.stdout, sys.stderr)}.values():
            if stream is not None and is_terminal(stream):
                self._watch(stream)

    def draw(self, views: Sequence[View]) -> None:
        """Replace the block on the screen."""
        size = self._size()
        lines = render_lines(views, self._stream, size.columns)[: max(1, size.lines - 2)]
        with self._lock:
            erasing = self._erasing() if self._is_drawn else ""
            self._lines = lines
            self._put_block(erasing)

    def clear(self) -> None:
        """Remove the block from the screen."""
        with self._lock:
            if self._is_drawn:
                self._put(self._erasing())
            self._lines = []

    def close(self) -> None:
        """Remove the block, and stop watching."""
        with self._lock:
            self.clear()
            self.leave()

    def leave(self) -> None:
        """Stop watching, and leave the screen unchanged."""
        while self._restore:
            self._restore.pop()()

    # ------------------------------------------------------------

    def _watch(self, stream: TextIO) -> None:
        original = stream.write

        def write(text: str) -> int:
            with self._lock:
                if self._is_drawn:
                    self._put(self._erasing())
                written = original(text)
                if text:
                    self._has_partial_line, self._knows_column = not text.endswith("\n"), True
                if self._lines and time.monotonic() - self._drawn_at >= _MIN_INTERVAL_S:
                    stream.flush()
                    self._put_block()
                return written

        def restore() -> None:
            if vars(stream).get("write") is write:
                del stream.write

        try:
            # The method of the instance, not another stream in `sys`: handlers of `logging` have kept this one.
            stream.write = write  # type: ignore[method-assign]
        except AttributeError:  # a stream of the program's own that has fixed attributes
            return
        self._restore.append(restore)

    def _put_block(self, before: str = "") -> None:
        if self._has_partial_line or _has_prompt() or not self._is_in_foreground():
            self._put(before)
            return  # the block would disturb a line that is not complete, or another program
        if not self._knows_column:
            # The program may have written a part of a line before the watch: then these spaces end in the next one.
            before, self._knows_column = " " * (self._size().columns - 1) + "\r", True
        self._is_drawn, self._drawn_at = True, time.monotonic()
        self._put(before + "".join(f"{line}\n" for line, _ in self._lines))

    def _put(self, text: str) -> None:
        try:
            if text:
                self._write(text)
                self._stream.flush()
        except (OSError, ValueError):  # the terminal was closed
            self._lines, self._is_drawn = [], False

    def _erasing(self) -> str:
        """Return the control sequence that erases the block."""
        self._is_drawn = False
        columns = self._size().columns
        # A line that is wider than the terminal, which was resized, takes several rows.
        rows = sum(max(1, -(-width // columns)) for _, width in self._lines)
        return f"\r\x1b[{rows}A\x1b[J"

    def _is_in_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self._stream.fileno()) == os.getpgrp()
        except (OSError, ValueError):  # it is not the terminal that controls this process
            return True

    def _size(self) -> os.terminal_size:
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            return _DEFAULT_SIZE
        return size if size.columns and size.lines else _DEFAULT_SIZE


def _has_prompt() -> bool:
    """Return whether the main thread is in a debugger, whose prompt does not go through `write`."""
    if "cmd" not in sys.modules:
        return False
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        if frame.f_globals.get("__name__") == "cmd":
            return True
        frame = frame.f_back
    return False


# ------------------------------------------------------------ lines


def render_lines(views: Sequence[View], stream: TextIO, columns: int) -> list[tuple[str, int]]:
    """Return the lines of views, with colors if the terminal has them, and the width of each."""
    from rich.console import Console
    from rich.text import Text

    # The last column stays free: some terminals wrap the line when it is filled.
    console = Console(file=stream, width=max(20, columns - 1), highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        for view in views:
            for renderable in _renderables(view):
                console.print(renderable, no_wrap=True, overflow="ellipsis")
    return [(line, Text.from_ansi(line).cell_len) for line in captured.get().splitlines()]


def _renderables(view: View) -> list[RenderableType]:
    from rich.text import Text

    title = Text(no_wrap=True, overflow="ellipsis")
    title.append(view.title, style="bold")
    title.append(f"  {format_duration(view.seconds)}")
    for fact in view.facts:
        title.append(f"  {fact}")
    for alert in view.alerts:
        title.append(f"  {alert}", style="red")
    found: list[RenderableType] = [title]
    if view.bar is not None:
        found.append(_bar(view.bar))
    if view.table is not None and view.table.rows:
        found.append(_table(view.table))
    found += [Text(line, no_wrap=True, overflow="ellipsis", style="dim") for line in view.footer.splitlines()]
    return found


def _bar(bar: Bar) -> RenderableType:
    from rich.progress_bar import ProgressBar
    from rich.table import Table as Grid
    from rich.text import Text

    text = Text(bar.text(), no_wrap=True, overflow="ellipsis")
    if bar.share is None:
        return text
    grid = Grid.grid(padding=(0, 1))
    grid.add_column(width=4, justify="right")
    grid.add_column(width=_BAR_WIDTH)
    grid.add_column()
    grid.add_row(f"{bar.share:.0%}", ProgressBar(total=1.0, completed=bar.share, width=_BAR_WIDTH), text)
    return grid


def _table(table: Table) -> RenderableType:
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=None, pad_edge=False, header_style="dim")
    for column in table.columns:
        # Texts are shortened if the terminal is too narrow, numbers are not.
        grid.add_column(
            Text(column.title),
            justify="right" if column.is_number else "left",
            no_wrap=column.is_number,
            min_width=column.min_width or None,
        )
    for row in table.rows:
        grid.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in row))
    return grid
