"""Waiting for objects in `get` and `wait`, and the errors for deadlocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from skate._base import errors as exceptions
from skate._base import ids
from skate._base.object_ref import ERROR, PENDING, ObjectRef
from skate._engine.common import failures
from skate._engine.common.states import ALIVE
from skate._engine.inline.actors import Actor
from skate._engine.inline.calls import Invocation
from skate._engine.inline.context import current
from skate._engine.inline.methods import MethodCall, Methods
from skate._engine.inline.objects import Objects, Value
from skate._engine.inline.progress import Progress, deadlock_error
from skate._engine.inline.scheduler import Scheduler
from skate._engine.inline.views import Views

Maker = Callable[[bytes], tuple[Actor | None, Invocation | None]]


class Waiting:
    """Waits for objects, and lends the CPUs of the waiting task meanwhile."""

    def __init__(
        self,
        objects: Objects,
        progress: Progress,
        scheduler: Scheduler,
        methods: Methods,
        views: Views,
        maker_of: Maker,
    ) -> None:
        self._objects = objects
        self._progress = progress
        self._scheduler = scheduler
        self._methods = methods
        self._views = views
        self._maker_of = maker_of

    def get(self, references: list[ObjectRef[Any]], timeout: float | None) -> list[Any]:
        """Return the values of references; raise the first error."""
        objects = self._objects
        objects.check(references, several=True)
        _check_cancelled()

        def all_there() -> bool:
            return any(r._state == ERROR for r in references) or all(r._state != PENDING for r in references)

        if not all_there():
            with self._scheduler.lend_cpus():
                self._scheduler.retry()
                self._progress.until(all_there, timeout, lambda: self._deadlock_error("get", references))
        objects.check_open()
        for reference in references:
            if reference._state == ERROR:
                objects.value_of(reference)
        pending = sum(reference._state == PENDING for reference in references)
        if pending:
            raise exceptions.GetTimeoutError(failures.get_timed_out(pending, len(references), timeout))
        return [objects.value_of(reference) for reference in references]

    def wait(
        self, references: list[Any], num_returns: int, timeout: float | None
    ) -> tuple[list[Any], list[Any]]:
        """Split references into those that are ready, at most `num_returns`, and the rest."""
        own = [each for each in references if type(each) is not ObjectRef or each._engine is self._objects]
        if not own:
            self._objects.check(references)
        self._objects.check_open()
        _check_cancelled()
        wanted = min(num_returns, len(own))  # references of another session never become ready, as in Ray

        def enough() -> bool:
            found = 0
            for waitable in own:
                found += _is_ready(waitable)
                if found >= wanted:
                    return True
            return False

        with self._scheduler.lend_cpus():
            self._scheduler.retry()
            self._progress.until(enough, timeout, lambda: self._deadlock_error("wait", own))
        self._objects.check_open()
        ready: list[Any] = []
        rest: list[Any] = []
        for waitable in own:
            (ready if len(ready) < wanted and _is_ready(waitable) else rest).append(waitable)
        if len(own) < len(references):
            chosen = set(map(id, ready))  # object ids are unique within a session only
            rest = [each for each in references if id(each) not in chosen]
        return ready, rest

    def _deadlock_error(self, what: str, waitables: Sequence[Any]) -> BaseException:
        references = [w for w in waitables if isinstance(w, ObjectRef) and w._state == PENDING]
        names = ", ".join(map(repr, references[:3])) + (", …" if len(references) > 3 else "")
        error = deadlock_error(f"{what}({names})", self._views.why(references))
        for reference in references:
            actor, call = self._maker_of(ids.task_of(reference._id))
            if actor is not None and isinstance(call, MethodCall) and _is_next(actor, call):
                # Otherwise it would run after this error has freed the actor, possibly again and again.
                self._methods.fail(actor, call, Value.error(error))
        return error


def _is_next(actor: Actor, call: MethodCall) -> bool:
    """Return whether a call only waits until its actor is free."""
    missing = call.arguments is not None and call.arguments.missing()
    return actor.state == ALIVE and not call.claimed and not missing


def _check_cancelled() -> None:
    running = current.get()
    if running is not None and running.cancelled:
        raise exceptions.TaskCancelledError(running.task.hex())


def _is_ready(waitable: Any) -> bool:
    if type(waitable) is ObjectRef:
        return waitable._state != PENDING
    return bool(waitable._stream.ready())
