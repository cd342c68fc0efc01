"""Waiting for descriptors with `select.poll`, with the methods of `select.epoll`.

`poll` has no descriptor of its own, and does not see what another thread changes while it waits. So each waiting thread
also watches a flag, which a change sets; a poller that another one watches lends it its descriptors; and for an event
loop, a thread waits and makes a descriptor readable.
"""

from __future__ import annotations

import math
import os
import select
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from skate._base.background_threads import make_background_thread

if TYPE_CHECKING:
    from skate._engine.common.platform.interface import HasFileno

_NESTED = -1  # the descriptor of an event of another poller


def nonblocking_pipe() -> tuple[int, int]:
    """Return the ends of a new pipe: neither blocks, and neither is inherited by other programs."""
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends


class PipeFlag:
    """A flag in a pipe."""

    __slots__ = ("_read", "_write")

    def __init__(self) -> None:
        self._read, self._write = nonblocking_pipe()

    def fileno(self) -> int:
        """Return the end that is readable while the flag is set."""
        return self._read

    def set(self) -> None:
        """Set the flag."""
        try:
            os.write(self._write, b"x")
        except BlockingIOError:  # it is full, and so set
            return

    def clear(self) -> None:
        """Clear the flag."""
        try:
            while len(os.read(self._read, 4096)) == 4096:
                continue
        except BlockingIOError:
            return

    def close(self) -> None:
        """Close the pipe."""
        # First the numbers are forgotten: they may belong to other files as soon as these are closed.
        ends = self._read, self._write
        self._read = self._write = -1
        for end in ends:
            os.close(end)


class PollPoller:
    """Waits for descriptors, of which other threads may change the set meanwhile. One thread waits at a time."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._masks: dict[int, int] = {}
        self._others: dict[PollPoller, int] = {}  # pollers that this one watches
        self._flag = PipeFlag()
        self._files = select.poll()  # with all descriptors but those of other pollers
        self._files.register(self._flag.fileno(), select.POLLIN)
        self._waiting: set[PipeFlag] = set()  # of the threads that wait for these descriptors
        self._relay: _Relay | None = None
        self._lock = threading.Lock()
        self._closed = False

    # ------------------------------------------------------------ what is watched

    def register(self, fd: int | HasFileno, eventmask: int, /) -> None:
        """Start watching a descriptor, or another poller."""
        if isinstance(fd, PollPoller):
            self._others[fd] = eventmask
        else:
            self._set(fd if isinstance(fd, int) else fd.fileno(), eventmask)
        self._changed()

    def modify(self, fd: int | HasFileno, eventmask: int, /) -> None:
        """Watch a registered descriptor for other events."""
        if isinstance(fd, PollPoller):
            was, self._others[fd] = self._others[fd], eventmask
            if eventmask and not was:
                self._changed()  # a thread that does not look at it has to begin
            return
        descriptor = fd if isinstance(fd, int) else fd.fileno()
        if descriptor not in self._masks:
            raise FileNotFoundError(f"descriptor {descriptor} is not registered")
        self._set(descriptor, eventmask)
        self._changed()

    def unregister(self, fd: int | HasFileno, /) -> None:
        """Stop watching a descriptor."""
        descriptor = fd if isinstance(fd, int) else fd.fileno()
        if self._masks.pop(descriptor, None) is None:
            raise FileNotFoundError(f"descriptor {descriptor} is not registered")
        self._files.unregister(descriptor)
        self._changed()

    def _set(self, descriptor: int, mask: int) -> None:
        if self._closed:
            raise ValueError("the poller is closed")
        self._masks[descriptor] = mask
        self._files.register(descriptor, mask)

    def _changed(self) -> None:
        for flag in tuple(self._waiting):
            flag.set()

    # ------------------------------------------------------------ waiting

    def poll(self, timeout: float | None = None, maxevents: int = -1, /) -> list[tuple[int, int]]:
        """Wait for `timeout` seconds, or without a limit if negative; return descriptors and their events."""
        if self._closed:
            raise ValueError("the poller is closed")
        events = self._wait(self._flag, None if timeout is None or timeout < 0 else timeout)
        if not events and self._relay is not None:
            self._relay.resume()
        return events

    def _wait(self, flag: PipeFlag, timeout: float | None) -> list[tuple[int, int]]:
        """Wait in this thread, which `flag` wakes."""
        deadline = None if timeout is None else time.monotonic() + timeout
        left = timeout
        while True:
            watched = [self, *(other for other, mask in list(self._others.items()) if mask)]
            for poller in watched:  # before the look at the descriptors: a later change wakes this thread
                poller._waiting.add(flag)
            try:
                found = self._prepare(flag, watched).poll(None if left is None else math.ceil(left * 1000))
            finally:
                for poller in watched:
                    poller._waiting.discard(flag)
            events = list(self._events(flag, watched, found))
            if events or self._closed:
                return events
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return events

    def _prepare(self, flag: PipeFlag, watched: list[PollPoller]) -> select.poll:
        if flag is self._flag and len(watched) == 1:
            return self._files
        files = select.poll()
        files.register(flag.fileno(), select.POLLIN)
        for poller in watched:
            for descriptor, mask in list(poller._masks.items()):
                files.register(descriptor, mask)
        return files

    def _events(
        self, flag: PipeFlag, watched: list[PollPoller], found: list[tuple[int, int]]
    ) -> Iterator[tuple[int, int]]:
        """Yield the events of descriptors that are still watched, after clearing the flag."""
        for descriptor, event in found:
            if descriptor == flag.fileno():
                flag.clear()
            elif event & select.POLLNVAL:
                for poller in watched:
                    poller._forget(descriptor)
            elif descriptor in self._masks:
                yield descriptor, event
            elif any(self._others.get(poller) and descriptor in poller._masks for poller in watched[1:]):
                yield _NESTED, event

    def _forget(self, descriptor: int) -> None:
        """Stop watching a descriptor that was closed, as epoll does."""
        if self._masks.pop(descriptor, None) is not None:
            self._files.unregister(descriptor)

    # ------------------------------------------------------------ for event loops

    def fileno(self) -> int:
        """Return a descriptor that is readable while the poller has events."""
        with self._lock:
            if self._relay is None:
                self._relay = _Relay(self)
            return self._relay.fileno()

    def close(self) -> None:
        """Close the descriptors of the poller itself."""
        if self._closed:
            return
        self._closed = True
        if self._relay is not None:
            self._relay.close(in_parent=os.getpid() == self._process)
        self._flag.close()


class _Relay:
    """A thread that waits for the descriptors of a poller, and a descriptor that it makes readable.

    After that it rests until `resume`, which is called when the events have been handled.
    """

    def __init__(self, poller: PollPoller) -> None:
        self._poller = poller
        self._ready = PipeFlag()
        self._wake = PipeFlag()
        self._resumed = threading.Event()
        self._thread = make_background_thread("relay", self._run)
        self._thread.start()

    def fileno(self) -> int:
        return self._ready.fileno()

    def _run(self) -> None:
        while self._poller._wait(self._wake, None):
            self._resumed.clear()
            if self._poller._closed:
                return
            self._ready.set()
            self._resumed.wait()

    def resume(self) -> None:
        self._ready.clear()
        self._resumed.set()

    def close(self, *, in_parent: bool) -> None:
        """End the thread, which a forked child does not have, and close the descriptors."""
        if in_parent:
            self._wake.set()
            self._resumed.set()
            if self._thread is not threading.current_thread():
                self._thread.join(5)
        self._ready.close()
        self._wake.close()
