"""A `multiprocessing.Pool` with actors as processes."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from multiprocessing import TimeoutError
from types import TracebackType
from typing import Any, NoReturn

import skate
from skate._api import variables
from skate.util.multiprocessing._dispatch import Dispatcher, PoolTerminatedError
from skate.util.multiprocessing._job import Pace
from skate.util.multiprocessing._results import (
    AsyncResult,
    IMapIterator,
    OrderedIMapIterator,
    UnorderedIMapIterator,
)
from skate.util.multiprocessing._worker import CALL, MAP, STAR, PoolTraceback, RemotePoolActor, to_exception

__all__ = [
    "AsyncResult",
    "IMapIterator",
    "OrderedIMapIterator",
    "Pool",
    "PoolTerminatedError",
    "PoolTraceback",
    "TimeoutError",
    "UnorderedIMapIterator",
]

# As in multiprocessing: enough chunks to balance their differences, few enough to limit the overhead.
_CHUNKS_PER_PROCESS = 4


class Pool:
    """Run functions in a pool of processes, with the interface of `multiprocessing.Pool`.

    The processes are actors. They reserve no CPU unless `ray_remote_args` requests it, so a pool can be used inside a
    task or another pool. Functions may be lambdas and closures.

    Args:
        processes: Number of processes; by default the number of CPUs.
        initializer: Function that is called once in every process.
        initargs: Arguments of `initializer`.
        maxtasksperchild: Number of chunks after which a process is replaced.
        context: Ignored, with a warning.
        ray_address: Address to connect to if no session is running, as in `skate.init`.
        ray_remote_args: Options for the actors, as in `Actor.options(...)`.

    Raises:
        ValueError: If a number is not positive, or there are fewer CPUs than `processes`.
        Exception: The exception of `initializer`.

    Example:
        >>> with Pool(2) as pool:
        ...     pool.map(lambda x: x * x, range(5))
        [0, 1, 4, 9, 16]
    """

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., Any] | None = None,
        initargs: Iterable[Any] | None = None,
        maxtasksperchild: int | None = None,
        context: Any = None,
        ray_address: str | None = None,
        ray_remote_args: dict[str, Any] | None = None,
    ) -> None:
        _check_positive(processes, "processes")
        _check_positive(maxtasksperchild, "maxtasksperchild")
        if initializer is not None and not callable(initializer):
            raise TypeError(f"initializer must be callable, got {initializer!r}")
        if context is not None:
            warnings.warn("Pool ignores 'context': its processes are actors", stacklevel=2)
        self._processes = _ensure_session(processes, ray_address)
        actor_class = RemotePoolActor.options(**(ray_remote_args or {}))
        arguments = initializer, tuple(initargs or ())
        self._pace_of: tuple[Any, Pace] = None, Pace()
        self._dispatcher = Dispatcher(
            lambda: actor_class.remote(*arguments), self._processes, maxtasksperchild
        )
        self._start()
        self._finalizer = weakref.finalize(self, self._dispatcher.abandon)
        self._finalizer.atexit = False  # the session ends its actors itself

    def apply(
        self,
        func: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call `func(*args, **kwargs)` in one of the processes and return the result.

        Raises:
            ValueError: If the pool is closed.
            Exception: The exception of `func`.
        """
        return self.apply_async(func, args, kwargs).get()

    def apply_async(
        self,
        func: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
        callback: Callable[[Any], object] | None = None,
        error_callback: Callable[[Exception], object] | None = None,
    ) -> AsyncResult:
        """Call `func(*args, **kwargs)` in one of the processes without waiting for the result.

        Args:
            func: The function.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
            callback: Called with the result, in a thread of the pool; it should return quickly.
            error_callback: Called with the exception, if there is one.
        """
        self._check_running()
        _check_function(func)
        call = () if args is None else tuple(args), kwargs or {}
        return self._submit(func, [[call]], callback, error_callback, CALL)

    def map(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = None
    ) -> list[Any]:
        """Call `func` with every item and return the results in the same order.

        Args:
            func: The function.
            iterable: The items.
            chunksize: Number of items per chunk. By default, the items of every process are divided into four chunks.

        Raises:
            ValueError: If the pool is closed or `chunksize` is not positive.
            Exception: The first exception of `func`, in the order of the items. The other items were still processed.
        """
        results: list[Any] = self.map_async(func, iterable, chunksize).get()
        return results

    def map_async(
        self,
        func: Callable[[Any], Any],
        iterable: Iterable[Any],
        chunksize: int | None = None,
        callback: Callable[[list[Any]], object] | None = None,
        error_callback: Callable[[Exception], object] | None = None,
    ) -> AsyncResult:
        """Call `func` with every item without waiting for the results. See `map` and `apply_async`."""
        return self._map(MAP, func, iterable, chunksize, callback, error_callback)

    def starmap(
        self, func: Callable[..., Any], iterable: Iterable[Iterable[Any]], chunksize: int | None = None
    ) -> list[Any]:
        """Call `func(*item)` for every item and return the results in the same order. See `map`."""
        results: list[Any] = self._map(STAR, func, iterable, chunksize).get()
        return results

    def starmap_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        callback: Callable[[list[Any]], object] | None = None,
        error_callback: Callable[[Exception], object] | None = None,
    ) -> AsyncResult:
        """Call `func(*item)` for every item without waiting for the results. See `map` and `apply_async`."""
        return self._map(STAR, func, iterable, None, callback, error_callback)

    def imap(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = 1
    ) -> OrderedIMapIterator:
        """Call `func` with every item and return an iterator over the results in the same order.

        A list is submitted at once. From an iterator, only as many items are read as the processes can use, and more as
        results are retrieved.

        Args:
            func: The function.
            iterable: The items.
            chunksize: Number of items per chunk.

        Returns:
            An iterator. For an item whose function raised an exception, it yields the exception. Its method
                `next(timeout)` waits for a limited time.

        Raises:
            ValueError: If the pool is closed or `chunksize` is not positive.
            TypeError: If `iterable` is not iterable.
        """
        return OrderedIMapIterator(*self._imap_arguments(func, iterable, chunksize), owner=self)

    def imap_unordered(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = 1
    ) -> UnorderedIMapIterator:
        """Call `func` with every item and return an iterator over the results as they become ready.

        Otherwise like `imap`.
        """
        return UnorderedIMapIterator(*self._imap_arguments(func, iterable, chunksize), owner=self)

    def close(self) -> None:
        """Reject further work; the processes end when all submitted work is finished."""
        self._dispatcher.close()

    def terminate(self) -> None:
        """End the processes immediately; unfinished work fails with a `PoolTerminatedError`."""
        self._dispatcher.terminate()
        self._finalizer.detach()

    def join(self) -> None:
        """Wait for the processes to end.

        Raises:
            ValueError: If neither `close` nor `terminate` was called.
        """
        if not self._dispatcher.is_closed:
            raise ValueError("Pool is still running")
        self._dispatcher.join()

    def __enter__(self) -> Pool:
        self._check_running()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.terminate()

    def __reduce__(self) -> NoReturn:
        raise NotImplementedError("pool objects cannot be passed between processes or pickled")

    def __repr__(self) -> str:
        state = "closed" if self._dispatcher.is_closed else "running"
        return f"<Pool processes={self._processes} {state}>"

    def _start(self) -> None:
        actors = self._dispatcher.start()
        try:
            failures = [failure for failure in skate.get([a.ready.remote() for a in actors]) if failure]
            if failures:
                raise to_exception(failures[0])
        except BaseException:
            self._dispatcher.terminate()
            raise

    def _map(
        self,
        manner: int,
        func: Callable[..., Any],
        iterable: Iterable[Any],
        chunksize: int | None,
        callback: Callable[[list[Any]], object] | None = None,
        error_callback: Callable[[Exception], object] | None = None,
    ) -> AsyncResult:
        self._check_running()
        _check_function(func)
        _check_positive(chunksize, "chunksize")
        items = list(iterable)
        if chunksize is None:
            chunksize = max(1, -(-len(items) // (self._processes * _CHUNKS_PER_PROCESS)))
        starts = range(0, len(items), chunksize)
        chunks = [items[start : start + chunksize] for start in starts]
        return self._submit(func, chunks, callback, error_callback, manner)

    def _submit(
        self,
        func: Callable[..., Any],
        chunks: list[Any],
        callback: Callable[[Any], object] | None,
        error_callback: Callable[[Exception], object] | None,
        manner: int,
    ) -> AsyncResult:
        return AsyncResult(
            self._dispatcher,
            self._pace(func),
            func,
            chunks,
            callback,
            error_callback,
            manner=manner,
            owner=self,
        )

    def _imap_arguments(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None
    ) -> tuple[Dispatcher, Pace, Callable[[Any], Any], Iterable[Any], int]:
        self._check_running()
        _check_function(func)
        _check_positive(chunksize, "chunksize")
        return self._dispatcher, self._pace(func), func, iterable, chunksize or 1

    def _pace(self, func: Callable[..., Any]) -> Pace:
        """Return the recorded pace of the function, if the previous call used the same one."""
        if self._pace_of[0] is not func:
            self._pace_of = func, Pace()
        return self._pace_of[1]

    def _check_running(self) -> None:
        if self._dispatcher.is_closed:
            raise ValueError("Pool not running")


def _ensure_session(processes: int | None, address: str | None) -> int:
    """Start a session if there is none, and return the number of processes of the pool."""
    if not skate.is_initialized():
        where = address or variables.text("ADDRESS")
        if where in (None, "local"):
            skate.init(address=where, num_cpus=processes)
        else:
            skate.init(address=where)
    cpus = int(skate.cluster_resources().get("CPU", 0))
    if processes is None:
        return max(1, cpus)
    if processes > cpus:
        raise ValueError(
            f"Tried to start a pool with {processes} processes, but the session has {cpus} CPUs: "
            "use fewer, or start the session with more (skate.init(num_cpus=...))"
        )
    return processes


def _check_positive(value: int | None, name: str) -> None:
    if value is None:
        return
    if not isinstance(value, int):
        raise TypeError(f"{name} must be an int or None, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be > 0 or None, got {value}")


def _check_function(func: Any) -> None:
    if not callable(func):
        raise TypeError(f"Pool needs a callable, got {func!r}")
    if isinstance(func, skate.remote_function.RemoteFunction):
        raise TypeError(
            f"Pool needs the plain function, got the remote function {func!r}: remove @skate.remote"
        )
