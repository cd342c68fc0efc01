"""`get`, `put`, `wait`, `cancel` and `kill`."""

from __future__ import annotations

import numbers
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

import skate._engine as engines
from skate._base.generator import ObjectRefGenerator
from skate._base.object_ref import ObjectRef

if TYPE_CHECKING:
    from skate.actor import ActorHandle

R = TypeVar("R")


@overload
def get(object_refs: ObjectRef[R], *, timeout: float | None = None) -> R: ...
@overload
def get(object_refs: Sequence[ObjectRef[R]], *, timeout: float | None = None) -> list[R]: ...
@overload
def get(object_refs: Any, *, timeout: float | None = None) -> Any: ...
def get(object_refs: Any, *, timeout: float | None = None, _use_object_store: bool = False) -> Any:
    """Return the value of a reference, or of each reference in a list; block until they are ready.

    Args:
        object_refs: A reference or a list of references.
        timeout: The most seconds to wait; 0 does not wait.

    Raises:
        GetTimeoutError: The values were not ready in time.
        Exception: The task's exception, as an instance of its class and of RayTaskError.

    >>> import skate
    >>> skate.get([skate.put(1), skate.put(2)])
    [1, 2]
    """
    if type(object_refs) is ObjectRef:
        if timeout is not None:
            _check_timeout(timeout)
        return engines.current().get_one(object_refs, timeout)
    if isinstance(object_refs, (list, tuple)):
        engine = engines.current()
        if not object_refs:
            return []
        if _any_compiled(object_refs):
            from skate.dag.compiled_dag_ref import get_compiled

            return get_compiled(list(object_refs), timeout)
        for reference in object_refs:
            if type(reference) is not ObjectRef:
                raise _not_a_reference(reference, " in the list")
        _check_timeout(timeout)
        return engine.get(list(object_refs), timeout)
    if isinstance(object_refs, ObjectRefGenerator):
        return object_refs
    if _any_compiled([object_refs]):
        return object_refs.get(timeout)
    raise _not_a_reference(object_refs)


def _not_a_reference(value: Any, where: str = "") -> ValueError:
    return ValueError(
        f"get() takes an ObjectRef or a list of them, but got a value of type {type(value).__name__}{where}. Pass what "
        "`.remote()` or put() returned."
    )


def _check_timeout(timeout: Any) -> None:
    if timeout is None:
        return
    if type(timeout) is not float and not isinstance(timeout, numbers.Real):
        raise TypeError(
            f"The 'timeout' argument must be a number of seconds or None, got {timeout!r} ({type(timeout).__name__})."
        )
    if timeout < 0:
        raise ValueError(
            f"The 'timeout' argument must not be negative. Received {timeout}; None waits without a limit."
        )


def _any_compiled(references: Sequence[Any]) -> bool:
    return any(type(reference).__name__ == "CompiledDAGRef" for reference in references)


def put(value: R, *, _owner: Any = None, _tensor_transport: str | None = None) -> ObjectRef[R]:
    """Store a value and return a reference to it.

    >>> import skate
    >>> skate.get(skate.put("hello"))
    'hello'
    """
    if isinstance(value, ObjectRef):
        raise TypeError(
            f"put() got {value!r}, which refers to a stored value already: use it as it is. To store the reference "
            "itself, put a list that holds it."
        )
    return engines.current().put(value)


def wait(
    ray_waitables: list[Any],
    *,
    num_returns: int = 1,
    timeout: float | None = None,
    fetch_local: bool = True,
) -> tuple[list[Any], list[Any]]:
    """Split a list of references into those that are ready and the rest.

    Args:
        ray_waitables: References or generators, without duplicates.
        num_returns: Return as soon as this many are ready.
        timeout: The most seconds to wait.
        fetch_local: Whether an object on another machine counts as ready only after it was copied to this one.

    >>> import skate
    >>> ready, rest = skate.wait([skate.put(1), skate.put(2)])
    >>> len(ready), len(rest)
    (1, 1)
    """
    if isinstance(ray_waitables, (ObjectRef, ObjectRefGenerator)):
        raise TypeError(
            f"wait() takes a list, got a single {type(ray_waitables).__name__}: write wait([reference])."
        )
    if not isinstance(ray_waitables, list):
        raise TypeError(
            f"wait() takes a list of references and generators, got {type(ray_waitables).__name__}: pass list(...) of "
            "it."
        )
    _check_timeout(timeout)
    # Programs call this in a loop over thousands of references, each time with the list that it returned last.
    # Checking each reference again would cost more than the rest.
    global _rest
    signature = _signature(ray_waitables)
    if signature is None or signature != _rest:
        _check_waitables(ray_waitables)
    engine = engines.current()
    if not ray_waitables:
        return [], []
    if not isinstance(num_returns, int):
        raise TypeError(
            f"num_returns must be a positive integer, got {num_returns!r} ({type(num_returns).__name__})."
        )
    if num_returns <= 0:
        raise ValueError(f"Invalid number of objects to return {num_returns}: num_returns is 1 or more.")
    if num_returns > len(ray_waitables):
        raise ValueError(
            f"num_returns is {num_returns}, but wait() got only {len(ray_waitables)} references: lower num_returns, "
            "or pass more of them."
        )
    try:
        ready, rest = engine.wait(ray_waitables, num_returns, timeout, fetch_local)
    except AttributeError:
        _check_waitables(ray_waitables)  # the program may have changed the list
        raise
    _rest = _signature(rest)
    return ready, rest


_rest: tuple[Any, ...] | None = None  # identifies the list that `wait` returned last


def _signature(waitables: list[Any]) -> tuple[Any, ...] | None:
    """Return a value that identifies a list of references, even if a later list has the same address."""
    if not waitables or type(waitables[0]) is not ObjectRef or type(waitables[-1]) is not ObjectRef:
        return None
    return id(waitables), len(waitables), weakref.ref(waitables[0]), weakref.ref(waitables[-1])


def _check_waitables(waitables: list[Any]) -> None:
    for kind in set(map(type, waitables)):
        if kind is not ObjectRef and not issubclass(kind, ObjectRefGenerator):
            raise TypeError(
                f"wait() takes a list of references and generators, but the list has an item of type {kind.__name__}."
            )
    if len(waitables) != len(set(map(id, waitables))):
        raise ValueError(
            "wait() needs unique references, and got one twice: pass list(dict.fromkeys(references)), for example."
        )


def cancel(ray_waitable: Any, *, force: bool = False, recursive: bool = True) -> None:
    """Cancel the task that makes an object. A waiting task never runs; a running task is interrupted.

    Args:
        ray_waitable: A reference or generator returned by a task or actor call.
        force: Kill the worker that runs the task.
        recursive: Also cancel the tasks and calls that the task submitted.
    """
    engine = engines.current()
    if isinstance(ray_waitable, ObjectRefGenerator):
        engine.cancel_generator(ray_waitable, force=force, recursive=recursive)
        return
    if not isinstance(ray_waitable, ObjectRef):
        raise TypeError(
            "cancel() only supported for object refs. To end an actor, call `kill(actor)`. Got: "
            f"{type(ray_waitable)}."
        )
    engine.cancel(ray_waitable, force=force, recursive=recursive)


def kill(actor: ActorHandle[Any], *, no_restart: bool = True) -> None:
    """Kill an actor at once; with `no_restart=False` it restarts if `max_restarts` allows it.

    Args:
        actor: The actor's handle.
        no_restart: Whether the actor stays dead.
    """
    from skate.actor import ActorHandle

    engine = engines.current()
    if not isinstance(actor, ActorHandle):
        raise ValueError(
            f"kill() ends an actor, got {type(actor).__name__}: pass its handle. Tasks end with cancel()."
        )
    engine.kill(actor._ray_actor_id.binary(), no_restart=no_restart)


def free(object_refs: ObjectRef[Any] | list[ObjectRef[Any]]) -> None:
    """Free values now, even if references to them exist; getting them later raises ObjectFreedError."""
    references = [object_refs] if isinstance(object_refs, ObjectRef) else object_refs
    engines.current().free(references)
