"""Skate's references, each of which wraps one of Ray's."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from skate._base.alias import real_ray
from skate._base.object_ref import PENDING, ObjectRef
from skate._engine.ray.failures import translated

if TYPE_CHECKING:
    from skate._engine.ray.engine import RayEngine


def wrap(reference: Any, engine: RayEngine) -> ObjectRef[Any]:
    """Return Skate's reference for one of Ray's; its id is fetched at its first use."""
    ours: ObjectRef[Any] = ObjectRef.__new__(ObjectRef)
    ours._state = PENDING
    ours._data = reference
    ours._engine = engine
    ours._known = False
    ours._waiters = None
    return ours


def revive(reference: Any) -> ObjectRef[Any]:
    """Return Skate's reference for one of Ray's found in a value."""
    from skate._engine.ray.worker import attach

    return wrap(reference, attach())


class Carried:
    """Ray's handle, pickled inside one of Skate's; the process that unpickles it joins the session."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def __reduce__(self) -> tuple[Any, ...]:
        return _carried, (self.handle,)


def _carried(handle: Any) -> Carried:
    from skate._engine.ray.worker import attach

    attach()
    return Carried(handle)


async def result(reference: ObjectRef[Any]) -> Any:
    """Wait for a value in an event loop."""
    try:
        return await reference._data
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        raise translated(error) from None


def future(reference: ObjectRef[Any]) -> Future[Any]:
    """Return a future for a value that raises Skate's errors."""
    theirs: Future[Any] = reference._data.future()
    ours: Future[Any] = Future()

    def deliver(done: Future[Any]) -> None:
        if not ours.set_running_or_notify_cancel():
            return
        error = done.exception()
        if error is None:
            ours.set_result(done.result())
        else:
            ours.set_exception(translated(error).with_traceback(None))

    theirs.add_done_callback(deliver)
    return ours


class RayStream:
    """Implements `Stream` with a generator of Ray."""

    def __init__(self, generator: Any, engine: RayEngine) -> None:
        self.generator = generator
        self.engine = engine

    @property
    def task(self) -> bytes:
        """The id of the task that runs the generator."""
        id: bytes = self.generator._generator_ref.task_id().binary()
        return id

    def next(self, timeout: float | None) -> ObjectRef[Any] | None:
        """Return the next reference, or None after `timeout`; raise StopIteration at the end."""
        if timeout is not None:
            ready, _ = real_ray().wait([self.generator], timeout=timeout, fetch_local=False)
            if not ready:
                return None
        return wrap(next(self.generator), self.engine)

    async def next_async(self) -> ObjectRef[Any]:
        """Return the next reference; raise StopAsyncIteration at the end."""
        return wrap(await self.generator.__anext__(), self.engine)

    def ready(self) -> bool:
        """Return whether `next` would return (or raise) at once."""
        return bool(self.generator.next_ready()) or bool(self.generator.is_finished())

    def finished(self) -> bool:
        """Return whether all references have been taken."""
        return bool(self.generator.is_finished())

    def completed(self) -> ObjectRef[Any]:
        """Return a reference that is ready when the generator has ended."""
        return wrap(self.generator.completed(), self.engine)

    def close(self) -> None:
        """Do nothing: Ray drops the remaining items with its generator."""
