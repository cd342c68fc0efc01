"""How far generators may run ahead of their readers: each by itself, and all of an actor together."""

from __future__ import annotations

from collections.abc import Callable

from skate._engine.local.wire import messages as m


class _Stream:
    __slots__ = ("closed", "consumed", "made", "making", "missing", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.made = 0
        self.missing = 1  # objects that an error would take the place of
        self.making = 0  # 1 while the generator runs towards its next object
        self.consumed = 0
        self.closed = False


class Backpressure:
    """Counts what generators of this process have made and what has been taken.

    With a `cap` for the whole actor, objects count until they are taken, also after the generator that
    made them has ended.
    """

    def __init__(self) -> None:
        self.cap = 0
        self._streams: dict[bytes, _Stream] = {}
        self.on_moved: Callable[[], None] | None = None

    def expect_reader(self, task: bytes, taken: int = 0) -> None:
        """A generator will start: from now on its reader may tell what it takes, of an earlier attempt as well."""
        self._streams[task] = stream = _Stream(0)
        stream.consumed = taken

    def open(self, task: bytes, window: int) -> None:
        """A generator starts."""
        stream = self._streams.get(task)
        if stream is None:
            stream = self._streams[task] = _Stream(window)
        stream.window = window

    def made(self, task: bytes) -> int:
        """Return how many objects a generator has made."""
        stream = self._streams.get(task)
        return 0 if stream is None else stream.made

    def begin(self, task: bytes) -> None:
        """A generator goes on: the object that it will make counts already."""
        self._streams[task].making = 1

    def expect(self, task: bytes, count: int) -> None:
        """Say how many objects are missing if the generator fails now."""
        self._streams[task].missing = count

    def missing(self, task: bytes) -> int:
        """Return how many objects are missing from a generator that failed."""
        stream = self._streams.get(task)
        return 1 if stream is None else stream.missing

    def add(self, task: bytes) -> None:
        """A generator has made an object."""
        stream = self._streams[task]
        stream.making = 0
        stream.made += 1

    def is_closed(self, task: bytes) -> bool:
        """Return whether the reader has gone."""
        stream = self._streams.get(task)
        return stream is None or stream.closed

    def limited(self, task: bytes) -> bool:
        """Return whether the reader has to report what it takes."""
        return bool(self.cap or self._streams[task].window)

    def may_go_on(self, task: bytes) -> bool:
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
        """A generator has ended; with a cap its objects count until they are taken."""
        stream = self._streams.get(task)
        if stream is None:
            return
        stream.making = 0
        if not self.cap or stream.closed or stream.made <= stream.consumed:
            del self._streams[task]
        if self.cap and self.on_moved is not None:
            self.on_moved()

    def consumed(self, message: m.Consumed) -> None:
        """The reader of a generator has taken objects, or has gone."""
        stream = self._streams.get(message.task)
        if stream is None:
            return
        stream.consumed = max(stream.consumed, message.count)
        stream.closed = stream.closed or message.closed
        if self.on_moved is not None:
            self.on_moved()
