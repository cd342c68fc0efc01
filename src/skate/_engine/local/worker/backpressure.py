"""Backpressure of generators: how far each, and all of an actor together, may be ahead of their readers."""

from __future__ import annotations

from collections.abc import Callable

from skate._engine.local.wire import messages as m


class _Stream:
    __slots__ = ("closed", "consumed", "made", "making", "missing", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.made = 0
        self.missing = 1  # objects that an error would replace
        self.making = 0  # 1 while the generator computes its next object
        self.consumed = 0
        self.closed = False


class Backpressure:
    """Counts the objects that generators of this process have made, and those that were consumed.

    With a `cap` for the whole actor, objects count until they are consumed, even after their generator has ended.
    """

    def __init__(self) -> None:
        self.cap = 0
        self._streams: dict[bytes, _Stream] = {}
        self.on_moved: Callable[[], None] | None = None

    def expect_reader(self, task: bytes, taken: int = 0) -> None:
        """Expect reports from the reader of a generator that will start; `taken` counts items of an earlier attempt."""
        self._streams[task] = stream = _Stream(0)
        stream.consumed = taken

    def open(self, task: bytes, window: int) -> None:
        """Start a generator."""
        stream = self._streams.get(task)
        if stream is None:
            stream = self._streams[task] = _Stream(window)
        stream.window = window

    def made(self, task: bytes) -> int:
        """Return the number of objects that a generator has made."""
        stream = self._streams.get(task)
        return 0 if stream is None else stream.made

    def begin(self, task: bytes) -> None:
        """Count the next object of a generator that continues."""
        self._streams[task].making = 1

    def expect(self, task: bytes, count: int) -> None:
        """Set the number of objects that are missing if the generator fails now."""
        self._streams[task].missing = count

    def missing(self, task: bytes) -> int:
        """Return the number of objects that are missing from a failed generator."""
        stream = self._streams.get(task)
        return 1 if stream is None else stream.missing

    def add(self, task: bytes) -> None:
        """Count an object that a generator has made."""
        stream = self._streams[task]
        stream.making = 0
        stream.made += 1

    def is_closed(self, task: bytes) -> bool:
        """Return whether the reader is gone."""
        stream = self._streams.get(task)
        return stream is None or stream.closed

    def is_limited(self, task: bytes) -> bool:
        """Return whether the reader must report consumed objects."""
        return bool(self.cap or self._streams[task].window)

    def may_continue(self, task: bytes) -> bool:
        """Return whether a generator may make its next object."""
        stream = self._streams[task]
        if stream.closed:
            return True
        if stream.window and stream.made - stream.consumed >= stream.window:
            return False
        return not self.cap or self._outstanding() < self.cap

    def _outstanding(self) -> int:
        return sum(max(0, s.made + s.making - s.consumed) for s in self._streams.values() if not s.closed)

    def ended(self, task: bytes) -> None:
        """End a generator; with a cap, its objects count until they are consumed."""
        stream = self._streams.get(task)
        if stream is None:
            return
        stream.making = 0
        if not self.cap or stream.closed or stream.made <= stream.consumed:
            del self._streams[task]
        if self.cap and self.on_moved is not None:
            self.on_moved()

    def consumed(self, message: m.Consumed) -> None:
        """Handle the report of a reader that has consumed objects, or is gone."""
        stream = self._streams.get(message.task)
        if stream is None:
            return
        stream.consumed = max(stream.consumed, message.count)
        stream.closed = stream.closed or message.closed
        if self.on_moved is not None:
            self.on_moved()
