"""A pool that hands work to whichever of its actors is free."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import skate
from skate.exceptions import ActorUnavailableError, RayActorError, RayTaskError

if TYPE_CHECKING:
    from skate.actor import ActorHandle

__all__ = ["ActorPool"]

V = TypeVar("V")


class ActorPool:
    """Spread work over a fixed set of actors, one call at a time on each.

    Args:
        actors: Handles of the actors. A handle given twice gets two calls at a time.

    Raises:
        TypeError: If one of them is not an actor handle.

    Example:
        >>> import skate
        >>> @skate.remote
        ... class Doubler:
        ...     def double(self, x):
        ...         return 2 * x
        >>> pool = ActorPool([Doubler.remote(), Doubler.remote()])
        >>> list(pool.map(lambda actor, x: actor.double.remote(x), [1, 2, 3, 4]))
        [2, 4, 6, 8]
    """

    def __init__(self, actors: Iterable[ActorHandle[Any]]) -> None:
        if not isinstance(actors, Iterable):
            raise TypeError(
                f"'actors' must be a list of actor handles, got {actors!r} ({type(actors).__name__})"
            )
        self._idle_actors: list[ActorHandle[Any]] = [_checked_actor(actor) for actor in actors]
        self._pending_submits: list[tuple[Callable[[Any, Any], Any], Any]] = []
        # One entry per call under way, in the order of submission: who runs it and what it returned.
        self._calls: dict[int, tuple[ActorHandle[Any], list[Any], bool]] = {}
        self._next_task_index = 0

    def map(self, fn: Callable[[ActorHandle[Any], V], Any], values: Iterable[V]) -> Iterator[Any]:
        """Apply `fn` to every value and return an iterator over the results, in the order of the values.

        All values are submitted before this returns. Results of earlier `submit` calls that nobody
        fetched are dropped.

        Args:
            fn: Takes an actor and a value, and returns the reference (or references) of an actor call.
            values: What to submit.
        """
        self._drop_earlier_results()
        for value in values:
            self.submit(fn, value)
        return self._drain(self.get_next)

    def map_unordered(self, fn: Callable[[ActorHandle[Any], V], Any], values: Iterable[V]) -> Iterator[Any]:
        """Apply `fn` to every value and return an iterator over the results as they become ready.

        Otherwise like `map`.
        """
        self._drop_earlier_results()
        for value in values:
            self.submit(fn, value)
        return self._drain(self.get_next_unordered)

    def submit(self, fn: Callable[[ActorHandle[Any], V], Any], value: V) -> None:
        """Call `fn` with a free actor and `value`, now or as soon as an actor is free.

        Args:
            fn: Takes an actor and a value, and returns the reference (or references) of an actor call.
            value: Passed on to `fn`.

        Raises:
            TypeError: If `fn` returns anything else.
        """
        if not self._idle_actors:
            self._pending_submits.append((fn, value))
            return
        actor = self._idle_actors.pop()
        try:
            returned = fn(actor, value)
            refs = _checked_refs(returned)
        except BaseException:
            self._idle_actors.append(actor)
            raise
        self._calls[self._next_task_index] = actor, refs, refs is returned
        self._next_task_index += 1

    def has_next(self) -> bool:
        """Return whether there are results to get, ready or not."""
        return bool(self._calls or self._pending_submits)

    def get_next(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """Return the result of the oldest call whose result was not fetched yet.

        Args:
            timeout: How many seconds to wait for it; None waits as long as it takes.
            ignore_if_timedout: After a time-out forget the call and let its actor take the next one.

        Raises:
            TimeoutError: If the result is not there in time.
            StopIteration: If no result is left.
            RuntimeError: If work is waiting and the pool has no actor left to do it.
        """
        self._check_has_next()
        index = next(iter(self._calls))
        refs = self._calls[index][1]
        if timeout is not None:
            _, missing = skate.wait(refs, num_returns=len(refs), timeout=timeout)
            if missing:
                self._time_out([index] if ignore_if_timedout else [])
        return self._finish(index)

    def get_next_unordered(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """Return the result of whichever call is ready first.

        Args:
            timeout: How many seconds to wait for one; None waits as long as it takes.
            ignore_if_timedout: After a time-out forget all calls under way and let their actors take
                the next ones.

        Raises:
            TimeoutError: If no result is there in time.
            StopIteration: If no result is left.
            RuntimeError: If work is waiting and the pool has no actor left to do it.
        """
        self._check_has_next()
        # All references of one call become ready together, so its first one speaks for it.
        index_of = {refs[0]: index for index, (_, refs, _) in self._calls.items()}
        ready, _ = skate.wait(list(index_of), num_returns=1, timeout=timeout)
        if not ready:
            self._time_out(list(self._calls) if ignore_if_timedout else [])
        return self._finish(index_of[ready[0]])

    def has_free(self) -> bool:
        """Return whether an actor is idle and no submitted work is waiting for one."""
        return bool(self._idle_actors) and not self._pending_submits

    def pop_idle(self) -> ActorHandle[Any] | None:
        """Take an idle actor out of the pool and return it, or None if all are busy."""
        return self._idle_actors.pop() if self.has_free() else None

    def push(self, actor: ActorHandle[Any]) -> None:
        """Add an actor to the pool; it takes waiting work at once.

        Args:
            actor: The actor to add.

        Raises:
            ValueError: If it is in the pool already.
            TypeError: If it is not an actor handle.
        """
        busy = [owner for owner, _, _ in self._calls.values()]
        if actor in self._idle_actors or actor in busy:
            raise ValueError(f"Actor already belongs to current ActorPool: {actor!r}")
        self._return_actor(_checked_actor(actor))

    def _drain(self, next_result: Callable[[], Any]) -> Iterator[Any]:
        while self.has_next():
            yield next_result()

    def _drop_earlier_results(self) -> None:
        while self._calls:
            try:
                self.get_next(timeout=0, ignore_if_timedout=True)
            except (TimeoutError, RayTaskError, RayActorError):
                # This result was not requested, so neither is its error.
                continue

    def _check_has_next(self) -> None:
        if self._calls:
            return
        if self._pending_submits:
            raise RuntimeError(
                f"ActorPool has no actor left for {len(self._pending_submits)} submitted values: "
                "its actors died or were taken out; add one with push()"
            )
        raise StopIteration("No more results to get")

    def _time_out(self, ignored: list[int]) -> None:
        message = "Timed out waiting for result"
        if ignored:
            message += f". Ignored: {[self._calls[index][1] for index in ignored]}"
            for index in ignored:
                self._return_actor(self._calls.pop(index)[0])
        raise TimeoutError(message)

    def _finish(self, index: int) -> Any:
        actor, refs, several = self._calls.pop(index)
        is_alive = True
        try:
            return skate.get(refs) if several else skate.get(refs[0])
        except RayActorError as error:
            # A task error can have the type of an actor error: then the call failed because of some
            # other actor, and this one is well.
            is_alive = isinstance(error, ActorUnavailableError | RayTaskError)
            raise
        finally:
            if is_alive:
                self._return_actor(actor)

    def _return_actor(self, actor: ActorHandle[Any]) -> None:
        self._idle_actors.append(actor)
        if self._pending_submits:
            self.submit(*self._pending_submits.pop(0))


def _checked_actor(actor: Any) -> ActorHandle[Any]:
    if not isinstance(actor, skate.actor.ActorHandle):
        raise TypeError(
            f"ActorPool needs actor handles, got {actor!r}: make one with YourActorClass.remote(...)"
        )
    return actor


def _checked_refs(returned: Any) -> list[Any]:
    refs = returned if isinstance(returned, list) else [returned]
    if not refs or not all(isinstance(ref, skate.ObjectRef) for ref in refs):
        raise TypeError(
            f"the function given to ActorPool returned {returned!r}: it has to return what an actor "
            "call returns, as in `lambda actor, value: actor.method.remote(value)`"
        )
    return refs
