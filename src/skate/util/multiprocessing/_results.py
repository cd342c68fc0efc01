"""Results of a pool's methods: asynchronous results and iterators."""

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
from skate.util.multiprocessing._worker import CALL, MAP, Outcome, to_exception


class AsyncResult:
    """The result of `Pool.apply_async`, `map_async` or `starmap_async`."""

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
        self._owner: object | None = owner  # keeps the pool alive until the result is complete
        self._callback = callback
        self._error_callback = error_callback
        self._parts: list[list[Any]] = [[] for _ in chunks]
        self._errors: dict[int, Exception] = {}
        self._missing = len(chunks)
        self._is_done = not chunks
        dispatcher.submit(Chunk(self, index, items) for index, items in enumerate(chunks))

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the result is available or `timeout` seconds have passed."""
        if not self._is_done:
            self._dispatcher.wait_for(lambda: self._is_done or None, timeout)

    def get(self, timeout: float | None = None) -> Any:
        """Return the result, or raise the exception of the function.

        Args:
            timeout: Seconds to wait; None waits without limit.

        Raises:
            multiprocessing.TimeoutError: If the result is not available in time.
        """
        self.wait(timeout)
        if not self._is_done:
            raise TimeoutError(f"no result within {timeout} s")
        if self._errors:
            raise self._first_error()
        return self._value()

    def ready(self) -> bool:
        """Return whether the call has finished, successfully or not."""
        if not self._is_done:
            self._dispatcher.advance()
        return self._is_done

    def successful(self) -> bool:
        """Return whether the call has finished without an exception.

        Raises:
            ValueError: If it has not finished yet.
        """
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return not self._errors

    def deliver(self, index: int, result: Outcome | Exception) -> Callable[[], object] | None:
        """Store the result of a chunk. Called by the pool."""
        self._missing -= 1
        if isinstance(result, Exception):
            self._errors[index] = result
        else:
            self._parts[index], failures, _ = result
            if failures:
                self._errors[index] = to_exception(failures[min(failures)])
        if self._missing:
            return None
        if self._errors and self._error_callback is not None:
            return functools.partial(self._error_callback, self._first_error())
        if not self._errors and self._callback is not None:
            return functools.partial(self._callback, self._value())
        self.finish()
        return None

    def finish(self) -> None:
        """Record that the job is complete. Called by the pool."""
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

    For an item whose function raised an exception, the exception is the result; it is not raised.
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
        self._owner: object | None = owner  # keeps the pool alive as long as the iterator
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
        self._taken = 0  # number of chunks
        self._results: deque[Any] = deque()
        if hasattr(iterable, "__len__"):
            # Nothing to wait for: submit all at once.
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
            timeout: Seconds to wait; None waits without limit.

        Raises:
            multiprocessing.TimeoutError: If the result is not available in time.
            StopIteration: If there are no more results.
        """
        with self._turn:
            if not self._results:
                self._results.extend(self._next_chunk(timeout))
            return self._results.popleft()

    def feed_all(self) -> None:
        """Submit all remaining items. Called by the pool before it is joined."""
        self._feed(sys.maxsize)

    def deliver(self, index: int, result: Outcome | Exception) -> None:
        """Store the result of a chunk. Called by the pool."""
        if isinstance(result, Exception):
            self._arrived[index] = [result] * self._lengths[index]
        else:
            values, failures, _ = result
            for position, failure in failures.items():
                values[position] = to_exception(failure)
            self._arrived[index] = values

    def finish(self) -> None:
        """Do nothing: there is no callback to wait for."""

    def _next_chunk(self, timeout: float | None) -> list[Any]:
        under_way = len(self._lengths) - self._taken
        # Two chunks for each one taken, until as many are in flight as the pool can use.
        usable = self._dispatcher.size * (1 + self.pace.calls_per_actor) * self.pace.chunks_per_call
        self._feed(min(2, usable - under_way))
        if self._taken == len(self._lengths):
            self._owner = None
            error, self._source_error = self._source_error, None
            raise StopIteration if error is None else error
        values = self._dispatcher.wait_for(self._take_available, timeout)
        if values is None:
            raise TimeoutError(f"no result within {timeout} s")
        self._taken += 1
        return values

    def _feed(self, most: int) -> None:
        """Submit up to this many chunks, or the remaining items."""
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

    def _take_available(self) -> list[Any] | None:
        """Remove and return the results to yield next, if they are available."""
        raise NotImplementedError


class OrderedIMapIterator(IMapIterator):
    """Yield the results in the order of the items."""

    def _take_available(self) -> list[Any] | None:
        return self._arrived.pop(self._taken, None)


class UnorderedIMapIterator(IMapIterator):
    """Yield the results as they become available, those of one chunk together."""

    def _take_available(self) -> list[Any] | None:
        first = next(iter(self._arrived), None)
        return None if first is None else self._arrived.pop(first)
