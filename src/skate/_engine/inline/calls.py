"""Invocations: the arguments, results and retries of a task or a call."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from skate._base import errors as exceptions
from skate._base import ids
from skate._base.object_ref import ERROR, PENDING, ObjectRef
from skate._base.options import MethodOptions, TaskOptions
from skate._base.serialization import loads
from skate._engine.common import error_types, failures
from skate._engine.common.calls import Dependencies, pack_arguments, split_arguments
from skate._engine.common.outcomes import task_error
from skate._engine.common.states import FAILED, FINISHED, WAITING
from skate._engine.common.values import DYNAMIC, STREAMING
from skate._engine.inline.context import Running, Spec, current
from skate._engine.inline.objects import Objects, Value

if TYPE_CHECKING:
    from skate._engine.inline.streams import Stream


WORKER = 1  # the number of the only process


class Arguments:
    """Serialized arguments of a call, with references in place of pending values."""

    __slots__ = ("_data", "_dependencies", "_keep", "_objects")

    def __init__(self, objects: Objects, args: tuple[Any, ...], kwargs: dict[str, Any], what: str) -> None:
        args, kwargs, found = split_arguments(args, kwargs)
        objects.check([reference for _, reference in found])
        payload = pack_arguments(args, kwargs, what)
        self._objects = objects
        self._data = payload.to_bytes()
        self._keep = payload.references
        self._dependencies: Dependencies = found

    def missing(self) -> list[ObjectRef[Any]]:
        """Return the pending references."""
        return [reference for _, reference in self._dependencies if reference._state == PENDING]

    def broken(self) -> Value | None:
        """Return the error of a failed argument."""
        for _, reference in self._dependencies:
            if reference._state == ERROR:
                error: Value = reference._data
                return error
        return None

    def when_complete(self, callback: Callable[[], None]) -> bool:
        """Call `callback` once all arguments are ready, or one has failed; return whether that is the case now."""
        missing = self.missing()
        if not missing or self.broken() is not None:
            return True
        remaining = len(missing)

        def arrived(reference: ObjectRef[Any]) -> None:
            nonlocal remaining
            before, remaining = remaining, 0 if reference._state == ERROR else remaining - 1
            if before > 0 and remaining <= 0:
                callback()

        for reference in missing:
            self._objects.watch(reference, arrived)
        return False

    def load(self) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments as copies of the caller's values."""
        args, kwargs = loads(self._data)
        args, kwargs = list(args), dict(kwargs or {})
        for slot, reference in self._dependencies:
            value = self._objects.value_of(reference)
            if isinstance(slot, int):
                args[slot] = value
            else:
                kwargs[slot] = value
        return args, kwargs


class Invocation:
    """One task, or one call of an actor's method."""

    __slots__ = (
        "_objects", "arguments", "attempt", "cancelled", "count", "created", "done", "ended", "error_message",
        "error_type", "id", "keep", "kind", "name", "parent", "per_yield", "recorded", "references",
        "retries_left", "retry", "running", "spec", "started", "state", "stream", "window",
    )  # fmt: skip

    def __init__(
        self, objects: Objects, id: bytes, name: str, kind: str, spec: Spec, arguments: Arguments
    ) -> None:
        self._objects = objects
        self.id = id
        self.name = name
        self.kind = kind
        self.spec = spec
        self.arguments: Arguments | None = arguments
        self.count = 1
        self.references: list[ObjectRef[Any]] = []
        self.stream: Stream | None = None
        self.window = 0
        self.per_yield = 1
        self.retries_left = 0
        self.retry: bool | tuple[type[Exception], ...] = False
        self.attempt = 0
        self.cancelled = False
        self.done = False
        self.keep: Any = None  # objects to keep alive until the call is done
        self.running: Running | None = None
        self.parent = b""
        self.recorded = spec.events
        self.state = WAITING
        self.created = time.time()
        self.started = 0.0
        self.ended = 0.0
        self.error_type: str | None = None
        self.error_message: str | None = None

    def return_value(
        self, count: int, options: TaskOptions | MethodOptions, new_stream: Callable[[Invocation], Stream]
    ) -> Any:
        """Record the submitting task, and return what `remote()` returns: references or a generator.

        Args:
            count: The number of return values.
            options: The options of the call.
            new_stream: Creates the stream of a generator.
        """
        if options.enable_task_events is not None:
            self.recorded = options.enable_task_events
        submitter = current.get()
        if submitter is not None:
            self.parent = submitter.task
            submitter.children.append(self.id)
        if count != STREAMING:
            return self.make_references(count)
        self.count = count
        self.window = max(0, options.effective_generator_backpressure_num_objects)
        self.per_yield = options.effective_num_objects_per_yield
        self.stream = new_stream(self)
        return self.stream.generator()

    def make_references(self, count: int) -> Any:
        """Create the return references: one, several, or None."""
        self.count = count
        number = 1 if count == DYNAMIC else count
        made = [self._objects.new(ids.object_id(self.id, index)) for index in range(1, number + 1)]
        self.references = made
        if count in (1, DYNAMIC):
            return made[0]
        return list(made) if count > 1 else None

    def begin(self, running: Running) -> None:
        """Record the start of an attempt."""
        running.attempt = self.attempt
        self.running = running
        self.started = self.started or time.time()

    def spend_retry(self) -> bool:
        """Use one of the remaining retries; return whether there was one."""
        if not self.retries_left or self.cancelled or self.done:
            return False
        if self.retries_left > 0:
            self.retries_left -= 1
        self.attempt += 1
        return True

    def settle(self, values: Sequence[Value]) -> None:
        """Give the references their values."""
        if self.cancelled:
            self.fail(self.cancellation())
            return
        if self.done:
            return
        self._finish(FINISHED)
        for reference, value in zip(self.references, values, strict=False):
            self._objects.settle(reference, value)
        self.references = []

    def fail(self, error: Value) -> None:
        """Give every reference an error; a stream gets it as its last item."""
        if self.done:
            return
        self._describe_error(error)
        self._finish(FAILED)
        self._settle(error)

    def leave(self, error: Value) -> None:
        """Finish a call that has ended its actor as it was to do; its references get an error."""
        self._finish(FINISHED)
        self._settle(error)

    def _settle(self, error: Value) -> None:
        if self.stream is not None:
            self.stream.fail(error)
        for reference in self.references:
            self._objects.settle(reference, error)
        self.references = []

    def _describe_error(self, error: Value) -> None:
        found = loads(error.data)
        cause = getattr(found, "cause", None)
        raised = cause if isinstance(cause, BaseException) else found
        kind, _, self.error_message = error_types.describe_failure(
            error_types.category(raised), str(found)
        ).partition("\n")
        self.error_type = self.error_type or kind

    def fail_with(self, argument: Value) -> None:
        """Fail because an argument failed; the error names both tasks."""
        cause = loads(argument.data)
        if isinstance(cause, exceptions.RayTaskError):
            argument = Value.error(exceptions.RayTaskError.from_dependency(self.name, cause))
        self.fail(argument)

    def finish_stream(self) -> None:
        """Record the end of a generator."""
        if not self.done:
            self._finish(FINISHED)

    def cancellation(self, at: BaseException | None = None) -> Value:
        """Return the error of a cancelled call; a task error for calls of actors, and for tasks that ran.

        Args:
            at: The exception that ended it, whose traceback shows where it was.
        """
        if self.running is None and self.kind != "ACTOR_TASK":
            return Value.failure(failures.task_cancelled(self.id))
        error = exceptions.TaskCancelledError(self.id.hex())
        error.__traceback__ = None if at is None else at.__traceback__
        return Value.error(task_error(error, self.name))

    def _finish(self, state: str) -> None:
        self.done = True
        self.state = state
        self.ended = time.time()
        self.arguments = self.keep = None

    def row(self) -> dict[str, Any]:
        """Return the row for the state API."""
        actor = ids.actor_of(self.id)
        return {
            "task_id": self.id,
            "name": self.name,
            "type": self.kind,
            "job_id": self.id[-ids.JOB_SIZE :],
            "actor_id": actor or b"",
            "state": self.state,
            "created": self.created,
            "started": self.started,
            "ended": self.ended,
            "worker_id": WORKER,
            "worker_pid": os.getpid(),
            "attempt_number": self.attempt,
            "error_type": self.error_type,
            "error_message": self.error_message,
            "parent_task_id": self.parent,
            "required_resources": {} if self.kind == "ACTOR_TASK" else self.spec.resources,
            "func_or_class_name": self.name if actor is not None else self.spec.qualname or self.name,
            **self.spec.columns(),
        }
