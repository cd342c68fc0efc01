"""Running user code in place: copied arguments in, serialized results out, exceptions kept for `get`."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from types import GeneratorType
from typing import Any, Protocol

from skate._base import errors as exceptions
from skate._base import ids
from skate._base.generator import DynamicObjectRefGenerator
from skate._base.object_ref import ObjectRef
from skate._engine.common.outcomes import (
    ExitRequest,
    check_yields,
    checked_generator,
    matches,
    put_each,
    returned_values,
    serialize_result,
    split_yield,
    task_error,
    yielded_values,
)
from skate._engine.common.values import DYNAMIC
from skate._engine.inline.calls import Invocation
from skate._engine.inline.context import Running, current
from skate._engine.inline.environments import (
    Environments,
    OutsideLoop,
    ProcessSettings,
    fatal_exceptions,
    strip_context,
)
from skate._engine.inline.objects import Objects, Value


class CallOwner(Protocol):
    """Who has a call run: knows the function, and what to do about an exception."""

    def function(self, call: Invocation) -> Callable[..., Any]:
        """Return what to call."""

    def handle_error(self, call: Invocation, error: BaseException) -> bool:
        """Tell the callers of a call that raised, or return True to have it run again."""

    def finish(self, call: Invocation) -> None:
        """The generator of a call has ended."""


class Execution:
    """Runs calls to their end, one inside the other."""

    def __init__(self, objects: Objects, environments: Environments, lock: threading.Lock) -> None:
        self._objects = objects
        self.environments = environments
        self.lock = lock

    @contextmanager
    def isolate(self, settings: ProcessSettings) -> Iterator[None]:
        """Give code what a process of its own would have: its environment, and no event loop around it."""
        with OutsideLoop(), self.environments.apply(settings):
            yield

    # ------------------------------------------------------------ calls with results

    def run(self, call: Invocation, owner: CallOwner, running: Running, settings: ProcessSettings) -> None:
        """Run a call until it has results or an error."""
        while not call.done:
            attempt = call.attempt
            error = self._attempt(call, owner, running, settings)
            if error is None or call.attempt != attempt or not owner.handle_error(call, error):
                return

    def _attempt(
        self, call: Invocation, owner: CallOwner, running: Running, settings: ProcessSettings
    ) -> BaseException | None:
        """Run a call once, and give its results to those who wait; return what it raised."""
        outer = sys.exception()
        call.begin(running)
        attempt = call.attempt
        try:
            with self.isolate(settings):
                values = Context().run(self._values, call, owner, running)
        except fatal_exceptions() as error:
            # Ctrl-C and the debugger's `quit` end the program, not the task.
            call.fail(Value.error(ended_by(error)))
            raise
        except BaseException as error:
            strip_context(error, outer)
            return error
        if running.exiting:
            return ExitRequest(0)
        if call.attempt == attempt:
            call.settle(values)
        return None

    def _values(self, call: Invocation, owner: CallOwner, running: Running) -> list[Value]:
        current.set(running)
        assert call.arguments is not None
        function = owner.function(call)
        args, kwargs = call.arguments.load()
        value = function(*args, **kwargs)
        if call.count == 1 and type(value) is GeneratorType:
            check_yields(function, call.name)
        return self.values(call, value)

    def values(self, call: Invocation, value: Any) -> list[Value]:
        """Return a return value as the values of a call's references."""
        if call.count == 1 and type(value) is not GeneratorType:
            return [self.value(value, call.name)]
        if call.count == 0:
            return []

        def retries(error: BaseException) -> bool:
            return matches(error, call.retry)

        def fail(error: BaseException) -> Value:
            return Value.error(task_error(error, call.name))

        def make(item: Any) -> Value:
            return self.value(item, call.name)

        def put(index: int, item: Any) -> ObjectRef[Any]:
            return self._objects.put(serialize_result(item, call.name), ids.object_id(call.id, index))

        def put_error(index: int, error: BaseException) -> ObjectRef[Any]:
            reference = self._objects.new(ids.object_id(call.id, index))
            self._objects.settle(reference, fail(error))
            return reference

        if call.count == DYNAMIC:
            made = put_each(value, put, put_error, retries)
            return [self.value(DynamicObjectRefGenerator(made), call.name)]
        if hasattr(value, "__next__"):
            return yielded_values(value, call.count, call.name, make, fail, retries)
        return [self.value(item, call.name) for item in returned_values(value, call.count, call.name)]

    def value(self, value: Any, name: str) -> Value:
        """Serialize a return value."""
        return self._objects.store(serialize_result(value, name))

    # ------------------------------------------------------------ generators

    def stream(self, call: Invocation, owner: CallOwner, running: Running, settings: ProcessSettings) -> None:
        """Let a generator run as its items are asked for."""
        GeneratorRun(self, call, owner, running, settings).start()


class GeneratorRun:
    """The body of a generator: stands still until the next item is wanted."""

    def __init__(
        self,
        execution: Execution,
        call: Invocation,
        owner: CallOwner,
        running: Running,
        settings: ProcessSettings,
    ) -> None:
        self._execution = execution
        self._call = call
        self._owner = owner
        self._running = running
        self._settings = settings
        self._context = Context()
        self._generator: Any = None
        self._index = 0  # of the next item of this attempt
        self._busy = False
        assert call.stream is not None
        self._stream = call.stream

    def start(self) -> None:
        """Wait for the first item to be wanted."""
        self._lend()  # it needs none while it stands still
        self._stream.on_closed = self.close
        self._stream.start(self.resume)
        if self._stream.closed:
            self.close()

    def resume(self) -> None:
        """Make the items that are wanted."""
        with self._execution.lock:
            if self._busy or self._call.done:
                return
            self._busy = True
        try:
            self._regain()
            while self._stream.wanted > self._stream.made and not self._call.done and not self._stream.closed:
                self._step()
        finally:
            self._busy = False
            self._lend()
            if self._call.done or self._stream.closed:
                self.close()
            self._stream.changed()  # for threads that could not let it go on meanwhile

    def _lend(self) -> None:
        grant = self._running.grant
        if grant is not None:
            with self._execution.lock:
                grant.lend_cpus()

    def _regain(self) -> None:
        grant = self._running.grant
        if grant is not None:
            with self._execution.lock:
                grant.regain_cpus()

    def _step(self) -> None:
        call = self._call
        outer = sys.exception()
        try:
            with self._execution.isolate(self._settings):
                for item in self._context.run(self._next):
                    self._index += 1
                    if self._index > self._stream.made:  # not one that an earlier attempt made already
                        self._stream.add(item)
        except StopIteration:
            call.finish_stream()
            self._stream.end()
        except fatal_exceptions() as error:
            call.fail(Value.error(ended_by(error)))
            raise
        except BaseException as error:
            strip_context(error, outer)
            self._generator = None
            self._index = 0
            self._owner.handle_error(call, error)

    def _next(self) -> list[Value]:
        call = self._call
        if self._generator is None:
            current.set(self._running)
            call.begin(self._running)
            assert call.arguments is not None
            args, kwargs = call.arguments.load()
            self._generator = checked_generator(self._owner.function(call)(*args, **kwargs), call.name)
        return [
            self._execution.value(item, call.name)
            for item in split_yield(next(self._generator), call.per_yield, call.name)
        ]

    def close(self) -> None:
        """The call is done, or its reader is gone: end the body where it stands."""
        if self._busy:
            return  # `resume`, below on the stack, comes back here
        if not self._call.done:
            self._call.finish_stream()
            self._stream.end()
        generator, self._generator = self._generator, None
        if hasattr(generator, "close"):
            try:
                with self._execution.isolate(self._settings):
                    self._context.run(generator.close)
            except Exception:  # there is nobody left to tell
                logging.getLogger("skate").exception("Ending the generator of %s failed", self._call.name)
        self._owner.finish(self._call)


def ended_by(error: BaseException) -> BaseException:
    """Return the error of a call that the user interrupted."""
    return exceptions.TaskCancelledError(None, f"It was ended by {type(error).__name__}.")
