"""Skate's references around Ray's: one of ours for each of theirs, made where it is met."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from skate._base.alias import real_ray
from skate._base.object_ref import PENDING, ObjectRef
from skate._engine.ray.failures import translated


def wrap(reference: Any, engine: Any) -> ObjectRef[Any]:
    """Return Skate's reference for one of Ray's; its id is asked for when somebody wants it."""
    ours: ObjectRef[Any] = ObjectRef.__new__(ObjectRef)
    ours._state = PENDING
    ours._data = reference
    ours._engine = engine
    ours._known = False
    ours._waiters = None
    return ours


def revive(reference: Any) -> ObjectRef[Any]:
    """Return Skate's reference for one of Ray's that came in a value."""
    from skate._engine.ray.worker import attach

    return wrap(reference, attach())


class Carried:
    """Ray's handle inside one of Skate's on its way: whoever unpickles it is part of the session from then on."""

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
    """Return a future for a value, whose error is Skate's."""
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
    """The references of a generator that runs in Ray."""

    def __init__(self, generator: Any, engine: Any) -> None:
        self.task = generator  # what `cancel_task` gets
        self.engine = engine

    def next(self, timeout: float | None) -> ObjectRef[Any] | None:
        """Return the next reference, or None when `timeout` has passed; StopIteration at the end."""
        if timeout is not None:
            ready, _ = real_ray().wait([self.task], timeout=timeout, fetch_local=False)
            if not ready:
                return None
        return wrap(next(self.task), self.engine)

    async def next_async(self) -> ObjectRef[Any]:
        """Return the next reference; StopAsyncIteration at the end."""
        return wrap(await self.task.__anext__(), self.engine)

    def ready(self) -> bool:
        """Tell whether `next` would return (or raise) at once."""
        return bool(self.task.next_ready()) or bool(self.task.is_finished())

    def finished(self) -> bool:
        """Tell whether all references have been taken."""
        return bool(self.task.is_finished())

    def completed(self) -> ObjectRef[Any]:
        """Return a reference that is ready when the generator has ended."""
        return wrap(self.task.completed(), self.engine)

    def close(self) -> None:
        """Let go of the items that nobody took: Ray does when its generator is gone."""


def when_ready(reference: ObjectRef[Any], callback: Callable[[ObjectRef[Any]], None]) -> None:
    """Call `callback` once the value is there."""
    reference._data.future().add_done_callback(lambda _: callback(reference))
