"""Progress bars for loops in tasks and actors, printed by the driver.

A bar prints lines of text, at most one per second, because the lines of many workers stay readable when they are
interleaved, unlike bars that move the cursor.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import Any, Generic, TypeVar

from skate._api import progress

T = TypeVar("T")

__all__ = ["safe_print", "tqdm"]


def safe_print(*args: Any, **kwargs: Any) -> None:
    """Print a line; progress bars are plain lines, so they need not be redrawn."""
    print(*args, **kwargs)  # noqa: T201 - it is what the function is for


class tqdm(Generic[T]):  # noqa: N801 - the name is tqdm's, and Ray's
    """Count the steps of a loop and print its progress, unless `SKATE_PROGRESS` is 0.

    Args:
        iterable: The iterable to loop over; without one, call `update` for each step.
        desc: Text before the numbers.
        total: Total number of steps; by default the length of `iterable`, if it has one.
        unit: Name of a step.
        position: Accepted as in Ray, without effect.
        flush_interval_s: Minimum time between two lines, in seconds.

    Example:
        >>> import sys
        >>> sys.stderr = sys.stdout  # where lines go
        >>> for word in tqdm(["a", "b", "c"], desc="words", flush_interval_s=60):
        ...     pass
        words: 1/3 it
        words: 3/3 it, done
        >>> sys.stderr = sys.__stderr__
    """

    DEFAULT_FLUSH_INTERVAL_SECONDS = 1.0

    def __init__(
        self,
        iterable: Iterable[T] | None = None,
        desc: str | None = None,
        total: int | None = None,
        unit: str | None = None,
        position: int | None = None,
        flush_interval_s: float | None = None,
    ) -> None:
        if total is None:
            total = len(iterable) if isinstance(iterable, Sized) else None
        self.n = 0
        self.total = total
        self._iterable = iterable
        self._description = desc or ""
        self._unit = unit or "it"
        self._interval = self.DEFAULT_FLUSH_INTERVAL_SECONDS if flush_interval_s is None else flush_interval_s
        self._last_line: float | None = None
        self._is_closed = False

    def __iter__(self) -> Iterator[T]:
        if self._iterable is None:
            raise ValueError("This progress bar has no iterable: pass one, as in tqdm(range(10)).")
        try:
            for item in self._iterable:
                yield item
                self.update()
        finally:
            self.close()

    def update(self, n: int = 1) -> None:
        """Advance by `n` steps."""
        self.n += n
        self.refresh()

    def set_description(self, desc: str) -> None:
        """Set the text before the numbers."""
        self._description = desc
        self.refresh()

    def refresh(self) -> None:
        """Print the progress, unless the last line was printed less than `flush_interval_s` ago."""
        now = time.monotonic()
        if self._last_line is None or now - self._last_line >= self._interval:
            self._last_line = now
            self._write("")

    def close(self) -> None:
        """Print the final progress; later calls print nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._write(", done")

    def _write(self, end: str) -> None:
        if not progress.is_turned_on():
            return
        of_total = "" if self.total is None else f"/{self.total}"
        before = f"{self._description}: " if self._description else ""
        if sys.stderr is not None:  # None if the program was started without it
            sys.stderr.write(f"{before}{self.n}{of_total} {self._unit}{end}\n")
            sys.stderr.flush()
