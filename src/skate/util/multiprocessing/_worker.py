"""The actor that runs in the processes of a pool."""

from __future__ import annotations

import functools
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import cloudpickle

import skate
from skate.exceptions import UnserializableException

Failure = tuple[Exception, str]

# Number of functions that a process caches. A function can be large, and few jobs run at a time.
MAX_FUNCTIONS = 8


# How a function takes its items. Plain integers and tuples, because pickle would look up a class for each message.
MAP = 0  # function(item)
STAR = 1  # function(*item)
CALL = 2  # function(*args, **kwargs) for an item (args, kwargs)

# A chunk as it is sent: the number of its job; the function, or None if an earlier chunk carried it; how the function
# takes the items; the items.
Part = tuple[int, Callable[..., Any] | None, int, Sequence[Any]]

# The outcome of a chunk: one value per item, None where it failed; the failures by position; the duration in
# seconds.
Outcome = tuple[list[Any], dict[int, Failure], float]


class PoolTraceback(Exception):
    """The traceback of a function that failed in a process of a pool, as the cause of its exception."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"


class PoolActor:
    """Run functions on chunks of items, one chunk at a time."""

    def __init__(self, initializer: Callable[..., Any] | None, initargs: Sequence[Any]) -> None:
        # Stored rather than raised: an actor whose constructor fails is dead, and its callers would only learn of its
        # death.
        self._broken: Failure | None = None
        self._functions: dict[int, Callable[..., Any]] = {}
        if initializer is not None:
            try:
                initializer(*initargs)
            except Exception as error:
                self._broken = to_failure(error)

    def ready(self) -> Failure | None:
        """Return the failure of the initializer, or None."""
        return self._broken

    def run(self, parts: list[Part]) -> list[Outcome | None]:
        """Run chunks sequentially.

        Returns:
            The outcome of each chunk, or None if its function must be sent again.
        """
        return [self._run(part) for part in parts]

    def stop(self) -> None:
        """End this process once all earlier calls have finished."""
        skate.actor.exit_actor()

    def _run(self, part: Part) -> Outcome | None:
        job, function, manner, items = part
        if self._broken is not None:
            return [None] * len(items), dict.fromkeys(range(len(items)), self._broken), 0.0
        if function is None:
            function = self._functions.get(job)
            if function is None:
                return None
        elif manner != CALL:
            self._functions[job] = function
            if len(self._functions) > MAX_FUNCTIONS:
                del self._functions[next(iter(self._functions))]
        if manner != MAP:
            function = functools.partial(_call_star if manner == STAR else _call_full, function)
        start = time.perf_counter()
        values, failures = _run_all(function, items)
        return values, failures, time.perf_counter() - start


RemotePoolActor: Any = skate.remote(num_cpus=0)(PoolActor)


def _run_all(function: Callable[[Any], Any], items: Sequence[Any]) -> tuple[list[Any], dict[int, Failure]]:
    values: list[Any] = []
    failures: dict[int, Failure] = {}
    rest = iter(items)
    while len(values) < len(items):
        try:
            # Keeps the results before an exception, and is twice as fast as a loop.
            values.extend(map(function, rest))
            if len(values) == len(items):
                break
            # `map` treats StopIteration from a function as the end of the items.
            raise StopIteration
        except Exception as error:
            failures[len(values)] = to_failure(error)
            values.append(None)
    return values, failures


def _call_star(function: Callable[..., Any], item: Iterable[Any]) -> Any:
    return function(*item)


def _call_full(function: Callable[..., Any], item: tuple[Iterable[Any], Mapping[str, Any]]) -> Any:
    args, kwargs = item
    return function(*args, **kwargs)


def to_failure(error: Exception) -> Failure:
    """Return an exception that can be pickled, and its traceback as text."""
    text = "".join(traceback.format_exception(error))
    try:
        cloudpickle.loads(cloudpickle.dumps(error))
    except Exception:  # whatever the exception's own pickling raises
        return UnserializableException(text), text
    return error, text


def to_exception(failure: Failure) -> Exception:
    """Return the exception of a failure, with the remote traceback as its cause."""
    error, text = failure
    error.__cause__ = PoolTraceback(text)
    return error
