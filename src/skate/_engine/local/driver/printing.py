"""Prints the output of workers on the driver's terminal.

The thread that receives messages only queues the lines, and the printer's own thread writes them, so that a slow
terminal does not delay results. The queue is bounded: lines that do not fit are counted, and the count is shown in
their place. Workers never wait for the terminal, and their log files contain every line.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from skate._base import variables
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    import re

WINDOW = 5.0  # seconds in which a line from several workers is shown once
MAX_ENTRIES = 10_000  # distinct lines that are kept to detect repetitions
MAX_QUEUED = 64 << 20  # characters that may wait for the terminal
_COLOURS = ("\033[36m", "\033[32m", "\033[33m", "\033[35m", "\033[34m", "\033[31m")


@dataclass
class _Repeated:
    """A line that was shown, and the other processes that have printed it since."""

    since: float
    name: str
    pid: int
    error: bool
    others: int = 0
    last: int = 0  # the process that printed it last, which has the name `name`


class Deduplicator:
    """Selects the lines to show. A line that several workers print within some seconds is shown once.

    At most `limit` lines are kept, and each is examined once when it expires, so that the cost of a line does not
    depend on the number of earlier lines.

    Args:
        limit: The number of lines to keep.
        window: Seconds to keep a line.
        always: Matches lines that are shown each time.
        never: Matches other lines that are never shown.
    """

    def __init__(
        self,
        *,
        limit: int = MAX_ENTRIES,
        window: float = WINDOW,
        always: re.Pattern[str] | None = None,
        never: re.Pattern[str] | None = None,
    ) -> None:
        self._limit = limit
        self.window = window
        self._always, self._never = always, never
        self._seen: OrderedDict[str, _Repeated] = OrderedDict()  # the oldest first
        self._pending = 0  # repetitions without a summary

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def has_repetitions(self) -> bool:
        """Whether a summary is pending."""
        return self._pending > 0

    def select(self, output: m.Output, now: float) -> list[m.Output]:
        """Return the outputs to show: summaries of expired lines, then new lines."""
        summaries = self.expire(now)
        shown = []
        for line in output.lines:
            if self._always is not None and self._always.search(line):
                shown.append(line)
                continue
            if self._never is not None and self._never.search(line):
                continue
            seen = self._seen.get(line)
            if seen is not None and seen.pid != output.pid:
                seen.others += 1
                seen.last = output.pid
                seen.name = output.name
                self._pending += 1
                continue
            if seen is None and line.strip():
                self._seen[line] = _Repeated(now, output.name, output.pid, output.error)
            shown.append(line)
        while len(self._seen) > self._limit:
            summaries += self._forget()
        return [*summaries, m.Output(output.name, output.pid, shown, output.error)]

    def expire(self, now: float) -> list[m.Output]:
        """Remove the lines whose window is over; return their summaries."""
        summaries: list[m.Output] = []
        while self._seen:
            oldest = next(iter(self._seen.values()))
            if now - oldest.since < self.window:
                break  # the others are newer
            summaries += self._forget()
        return summaries

    def expire_all(self) -> list[m.Output]:
        """Remove all lines; return their summaries."""
        summaries: list[m.Output] = []
        while self._seen:
            summaries += self._forget()
        return summaries

    def _forget(self) -> list[m.Output]:
        line, seen = self._seen.popitem(last=False)
        if not seen.others:
            return []
        self._pending -= seen.others
        text = f"{line} [repeated {seen.others}x across workers]"
        return [m.Output(seen.name, seen.last, [text], seen.error)]


class OutputPrinter:
    """Prints lines of workers in its own thread.

    Args:
        limit: The number of characters that may wait for the terminal.
        prefixed: Whether the name and the process of the worker precede each line.
    """

    def __init__(self, *, limit: int = MAX_QUEUED, prefixed: bool = True) -> None:
        self._deduplicator = _deduplicator()
        self._coloured = variables.flag("COLOR_PREFIX", True)
        self._limit = limit
        self._prefixed = prefixed
        self._queue: deque[tuple[m.Output, int]] = deque()
        self._queued = 0  # characters in the queue
        self._dropped = 0  # lines since the last one that was queued
        self._closing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def show(self, output: m.Output) -> None:
        """Queue lines of a worker. Never blocks."""
        size = sum(map(len, output.lines))
        with self._changed:
            self._dropped += output.dropped
            if self._queued + size > self._limit and self._queued and output.pid:
                self._dropped += len(output.lines)
                return
            if self._dropped:
                self._queue.append((self._notice(), 0))
            self._queue.append((output, size))
            self._queued += size
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="skate-print", daemon=True)
                self._thread.start()

    def _notice(self) -> m.Output:
        dropped, self._dropped = self._dropped, 0
        text = (
            f"{dropped} lines of workers were not shown, because they came faster than the program's output was read. "
            "Log files contain all of them: see `skate logs`."
        )
        return m.Output("skate", 0, [text], error=True)

    def close(self) -> None:
        """Print queued lines and the last summaries, then end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    # ------------------------------------------------------------ in the thread

    def _run(self) -> None:
        deduplicator = self._deduplicator
        while True:
            output = self._next()
            if output is None:
                break
            if deduplicator is None:
                self._write([output])
            elif output.lines:
                self._write(deduplicator.select(output, time.monotonic()))
            else:
                self._write(deduplicator.expire(time.monotonic()))
        if deduplicator is not None:
            self._write(deduplicator.expire_all())
        if self._dropped:
            self._write([self._notice()])

    def _next(self) -> m.Output | None:
        """Return the next output, an empty one when a summary may be due, or None at the end."""
        with self._changed:
            while not self._queue:
                if self._closing:
                    return None
                counting = self._deduplicator
                due = counting.window if counting is not None and counting.has_repetitions else None
                if not self._changed.wait(due):
                    return m.Output("", 0, [])
            output, size = self._queue.popleft()
            self._queued -= size
            return output

    def _write(self, outputs: Iterable[m.Output]) -> None:
        for output in outputs:
            stream = sys.stderr if output.error else sys.stdout
            if stream is None or not output.lines:  # a program without a terminal may have no streams
                continue
            try:
                _print(stream, output, self._prefix(output, coloured=self._coloured and stream.isatty()))
            except (OSError, ValueError):
                return  # the driver's output is closed, as in `program | head`

    def _prefix(self, output: m.Output, *, coloured: bool) -> str:
        if not self._prefixed:
            return ""
        prefix = f"({output.name} pid={output.pid})" if output.pid else f"({output.name})"
        if coloured:
            prefix = f"{_COLOURS[output.pid % len(_COLOURS)]}{prefix}\033[0m"
        return f"{prefix} "


def _deduplicator() -> Deduplicator | None:
    """Return the deduplicator that the environment variables configure; None to show all lines."""
    if not variables.flag("DEDUP_LOGS", True):
        return None
    return Deduplicator(
        window=variables.number("DEDUP_LOGS_AGG_WINDOW_S", WINDOW, at_least=0),
        always=variables.pattern("DEDUP_LOGS_ALLOW_REGEX"),
        never=variables.pattern("DEDUP_LOGS_SKIP_REGEX"),
    )


def _print(stream: TextIO, output: m.Output, prefix: str) -> None:
    text = "".join([f"{prefix}{line}\n" for line in output.lines])
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()
