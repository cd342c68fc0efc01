"""Outcomes of user code: counted and serialized values, and exceptions for the caller."""

from __future__ import annotations

import logging
import os
import reprlib
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from skate._base import errors as exceptions
from skate._base.exports import explain, is_generator
from skate._base.serialization import Serialized, dumps, loads, serialize

T = TypeVar("T")

_log = logging.getLogger("skate")


class ExitRequest(SystemExit):
    """Raised by `exit_actor` to leave the actor."""


def matches(error: BaseException, retry: bool | tuple[type[Exception], ...]) -> bool:
    """Return whether an exception is to be retried: any, or an instance of some classes."""
    if isinstance(retry, bool):
        return retry and isinstance(error, Exception)
    if isinstance(error, retry):
        return True
    cause = error.cause if isinstance(error, exceptions.RayTaskError) else None
    return isinstance(cause, retry)


def exit_code(request: SystemExit) -> int:
    """Return the exit code of a process for `sys.exit(…)`."""
    code = request.code
    return code if isinstance(code, int) else (0 if code is None else 1)


def serialize_result(value: Any, name: str) -> Serialized:
    """Serialize a return value; the error for one that cannot be pickled contains the path to the part at fault."""
    return _serialize(value, lambda: f"the return value of {name}")


def serialize_put(value: Any) -> Serialized:
    """Serialize a put value; the error for one that cannot be pickled contains the path to the part at fault."""
    return _serialize(value, lambda: f"the put value {reprlib.repr(value)}")


def _serialize(value: Any, what: Callable[[], str]) -> Serialized:
    try:
        return serialize(value)
    except RecursionError:
        raise
    except Exception as error:  # pickling runs arbitrary user code
        raise TypeError(explain(value, what(), error)) from error


def check_returns(value: Any, count: int, name: str) -> Sequence[Any]:
    """Return the `count` values that a function returned.

    Raises:
        ValueError: The number of values is different.
    """
    try:
        found = len(value)
    except TypeError:
        raise ValueError(
            f"{name} has num_returns={count} but returned a {type(value).__name__}, not a sequence."
        ) from None
    if found != count:
        raise ValueError(f"{name} has num_returns={count} but returned {found} values.")
    return list(value)


def collect_yields(
    generator: Iterator[Any],
    count: int,
    name: str,
    make: Callable[[Any], T],
    fail: Callable[[BaseException], T],
    retries: Callable[[BaseException], bool],
) -> list[T]:
    """Return the results of a generator with a fixed number of them.

    Args:
        generator: The return value of the function.
        count: The required number of results.
        name: The name of the task.
        make: Makes a result from an item.
        fail: Makes a result from an exception, which replaces all remaining results.
        retries: Returns whether the task is retried after an exception, which is then raised.
    """
    results: list[T] = []
    try:
        for item in generator:
            if len(results) == count:
                _log.error("%s yielded more than num_returns=%d objects: the rest is lost", name, count)
                return results
            results.append(make(item))
        if len(results) < count:
            raise ValueError(f"{name} yielded {len(results)} objects, fewer than num_returns={count}.")
    except Exception as error:
        if retries(error):
            raise
        results += [fail(error)] * (count - len(results))
    return results


def check_yields(function: Callable[..., Any], name: str) -> None:
    """Refuse a generator as the only result of a function that is not itself a generator function.

    Raises:
        TypeError: Only the first item would be returned.
    """
    if not is_generator(function):
        raise TypeError(
            f"{name} returned a generator, of which only the first item would arrive. Return a list, or let "
            f"{name} yield the items itself, so that it returns a stream of references."
        )


def put_each(
    generator: Iterator[Any],
    put: Callable[[int, Any], T],
    fail: Callable[[int, BaseException], T],
    retries: Callable[[BaseException], bool],
) -> list[T]:
    """Store each object that a generator yields; the last one is its error, if it fails.

    Args:
        generator: The return value of the function.
        put: Stores the item of an index, from 2: the first object of the task refers to all of them.
        fail: Stores an exception in place of an item.
        retries: Returns whether the task is retried after an exception, which is then raised.
    """
    made: list[T] = []
    try:
        for index, item in enumerate(generator, 2):
            made.append(put(index, item))
    except Exception as error:
        if retries(error):
            raise
        made.append(fail(len(made) + 2, error))
    return made


def check_generator(value: Any, name: str) -> Any:
    """Return the value of a streaming function if it is an iterator or an asynchronous iterator."""
    if hasattr(value, "__next__") or hasattr(value, "__anext__"):
        return value
    raise TypeError(
        f"{name} has num_returns='streaming', so it must return a generator, not a {type(value).__name__}."
    )


def split_yield(value: Any, per_yield: int, name: str) -> Any:
    """Return the objects of one `yield`."""
    if per_yield == 1:
        return (value,)
    if len(value) != per_yield:
        raise ValueError(f"{name} has _num_objects_per_yield={per_yield}, but yielded {len(value)} objects.")
    return value


def task_error(
    error: BaseException, name: str, actor: Any = None, actor_id: bytes = b""
) -> exceptions.RayTaskError:
    """Return the error for the callers of user code that raised."""
    actor_repr = None
    if actor is not None:
        try:
            actor_repr = repr(actor)
        except Exception as broken:  # a user's __repr__ must not hide the user's error
            actor_repr = f"<{type(actor).__name__} whose repr() raised {type(broken).__name__}>"
    return exceptions.RayTaskError.from_exception(
        name,
        error,
        pid=os.getpid(),
        actor_repr=actor_repr,
        actor_id=actor_id.hex() if actor_id else None,
        dumps=dumps,
        loads=loads,
    )


def run_without_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that awaits nothing, without an event loop; return its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    coroutine.close()
    raise AssertionError("the coroutine awaits something")


def as_raised(error: Any) -> BaseException:
    """Return the exception to raise for a stored error: a task's error keeps the type of its cause."""
    if isinstance(error, exceptions.RayTaskError):
        return error.as_instanceof_cause()
    if isinstance(error, BaseException):
        return error
    return exceptions.RaySystemError(f"An error could not be read: {error!r}")


def creation_error(cause: BaseException, actor_id: bytes, class_name: str) -> BaseException:
    """Return the error for the callers of an actor whose creation failed because of `cause`."""
    if isinstance(cause, (exceptions.RayActorError, exceptions.ActorUnschedulableError)):
        return cause
    if isinstance(cause, exceptions.RayTaskError):
        cause.actor_id = actor_id.hex()
        return exceptions.ActorDiedError(cause, class_name=class_name)
    if isinstance(cause, exceptions.RayError):
        return cause
    return exceptions.ActorDiedError(str(cause))
