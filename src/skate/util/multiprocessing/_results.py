"""What a pool's methods return: a result to wait for, or an iterator over results."""

from __future__ import annotations

import functools
import itertools
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import TimeoutError
from typing import Any

from skate.util.multiprocessing._dispatch import Dispatcher
from skate.util.multiprocessing._job import Chunk, Pace, new_number
from skate.util.multiprocessing._worker import CALL, MAP, Outcome, received


class AsyncResult:
    """Stand for the result of `Pool.apply_async`, `map_async` or `starmap_async`."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        pace: Pace,
        function: Callable[..., Any],
        chunks: list[Any],
        callback: Callable[[Any], object] | None,
        error_callback: Callable[[Exception], object] | None,
        *,
        manner: int,
        owner: object,
    ) -> None:
        self.number = new_number()
        self.pace = pace
        self._dispatcher = dispatcher
        self.function = function
        self.manner = manner
        self._owner: object | None = owner  # A pool that nobody else holds must live until this is done.
        self._callback = callback
        self._error_callback = error_callback
        self._parts: list[list[Any]] = [[] for _ in chunks]
        self._errors: dict[int, Exception] = {}
        self._missing = len(chunks)
        self._is_done = not chunks
        dispatcher.submit(Chunk(self, index, items) for index, items in enumerate(chunks))

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the result is there or `timeout` seconds have passed."""
        if not self._is_done:
            self._dispatcher.wait_for(lambda: self._is_done or None, timeout)

    def get(self, timeout: float | None = None) -> Any:
        """Return the result, or raise what the function raised.

        Args:
            timeout: How many seconds to wait for it; None waits as long as it takes.

        Raises:
            multiprocessing.TimeoutError: If it is not there in time.
        """
        self.wait(timeout)
        if not self._is_done:
            raise TimeoutError(f"no result within {timeout} s")
        if self._errors:
            raise self._first_error()
        return self._value()

    def ready(self) -> bool:
        """Return whether the call is done, well or not."""
        if not self._is_done:
            self._dispatcher.advance()
        return self._is_done

    def successful(self) -> bool:
        """Return whether the call is done without an exception.

        Raises:
            ValueError: If it is not done yet.
        """
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return not self._errors

    def deliver(self, index: int, result: Outcome | Exception) -> Callable[[], object] | None:
        """Take in what became of a chunk. Called by the pool."""
        self._missing -= 1
        if isinstance(result, Exception):
            self._errors[index] = result
        else:
            self._parts[index], failures, _ = result
            if failures:
                self._errors[index] = received(failures[min(failures)])
        if self._missing:
            return None
        if self._errors and self._error_callback is not None:
            return functools.partial(self._error_callback, self._first_error())
        if not self._errors and self._callback is not None:
            return functools.partial(self._callback, self._value())
        self.finish()
        return None

    def finish(self) -> None:
        """Note that all is done. Called by the pool."""
        self._is_done = True
        self._owner = self._callback = self._error_callback = None

    def _first_error(self) -> Exception:
        return self._errors[min(self._errors)]

    def _value(self) -> Any:
        if self.manner == CALL:
            return self._parts[0][0]
        return list(itertools.chain.from_iterable(self._parts))


class IMapIterator:
    """Iterate over the results of `Pool.imap` or `imap_unordered`.

    An item whose function raised gives the exception as its result instead of raising it.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        pace: Pace,
        function: Any,
        iterable: Iterable[Any],
        chunksize: int,
        *,
        owner: object,
    ) -> None:
        self.number = new_number()
        self.pace = pace
        self._dispatcher = dispatcher
        self._owner: object | None = owner  # A pool that nobody else holds must live as long as this.
        self.function = function
        self.manner = MAP
        self._source = iter(iterable)
        self._source_error: Exception | None = None
        self._chunksize = chunksize
        self._turn = threading.Lock()
        self._feeding = threading.Lock()
        self._is_fed = False
        self._lengths: list[int] = []  # of the chunks submitted so far
        self._arrived: dict[int, list[Any]] = {}
        self._taken = 0  # chunks
        self._results: deque[Any] = deque()
        if hasattr(iterable, "__len__"):
            # Nothing to wait for: all at once.
            self._is_fed = True
            items = list(self._source)
            parts = [items[start : start + chunksize] for start in range(0, len(items), chunksize)]
            self._lengths = [len(part) for part in parts]
            dispatcher.submit(Chunk(self, index, part) for index, part in enumerate(parts))
        else:
            dispatcher.keep_open_for(self)
            self._feed(dispatcher.size)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.next()

    def next(self, timeout: float | None = None) -> Any:
        """Return the next result.

        Args:
            timeout: How many seconds to wait for it; None waits as long as it takes.

        Raises:
            multiprocessing.TimeoutError: If it is not there in time.
            StopIteration: If there are no more.
        """
        with self._turn:
            if not self._results:
                self._results.extend(self._next_chunk(timeout))
            return self._results.popleft()

    def feed_all(self) -> None:
        """Submit all there is. Called by the pool when it is about to be joined."""
        self._feed(sys.maxsize)

    def deliver(self, index: int, result: Outcome | Exception) -> None:
        """Take in what became of a chunk. Called by the pool."""
        if isinstance(result, Exception):
            self._arrived[index] = [result] * self._lengths[index]
        else:
            values, failures, _ = result
            for position, failure in failures.items():
                values[position] = received(failure)
            self._arrived[index] = values

    def finish(self) -> None:
        """Do nothing: there is no callback to wait for."""

    def _next_chunk(self, timeout: float | None) -> list[Any]:
        under_way = len(self._lengths) - self._taken
        # Two for the one that is taken, until as many are under way as the pool can use.
        usable = self._dispatcher.size * (1 + self.pace.calls_per_actor) * self.pace.chunks_per_call
        self._feed(min(2, usable - under_way))
        if self._taken == len(self._lengths):
            self._owner = None
            error, self._source_error = self._source_error, None
            raise StopIteration if error is None else error
        values = self._dispatcher.wait_for(self._take_arrived, timeout)
        if values is None:
            raise TimeoutError(f"no result within {timeout} s")
        self._taken += 1
        return values

    def _feed(self, most: int) -> None:
        """Submit up to this many chunks, or what is left of the items."""
        with self._feeding:
            if self._is_fed or most < 1:
                return
            for _ in range(most):
                items: list[Any] = []
                try:
                    items.extend(itertools.islice(self._source, self._chunksize))
                except Exception as error:  # raised again once the results before it are taken
                    self._source_error = error
                if items:
                    self._lengths.append(len(items))
                    self._dispatcher.submit([Chunk(self, len(self._lengths) - 1, items)])
                if len(items) < self._chunksize:
                    self._is_fed = True
                    self._dispatcher.feeder_done(self)
                    return

    def _take_arrived(self) -> list[Any] | None:
        """Remove the results to give out next and return them, if they are there."""
        raise NotImplementedError


class OrderedIMapIterator(IMapIterator):
    """Give the results in the order of the items."""

    def _take_arrived(self) -> list[Any] | None:
        return self._arrived.pop(self._taken, None)


class UnorderedIMapIterator(IMapIterator):
    """Give the results as they become ready, those of one chunk together."""

    def _take_arrived(self) -> list[Any] | None:
        first = next(iter(self._arrived), None)
        return None if first is None else self._arrived.pop(first)
