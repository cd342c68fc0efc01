"""Running user code in this process: copied arguments in, serialized results or errors out."""

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
    check_generator,
    check_returns,
    check_yields,
    collect_yields,
    matches,
    put_each,
    serialize_result,
    split_yield,
    task_error,
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
    """The tasks or the actor that a call belongs to."""

    def function(self, call: Invocation) -> Callable[..., Any]:
        """Return the function to call."""

    def handle_error(self, call: Invocation, error: BaseException) -> bool:
        """Settle a call that raised, or return True to run it again."""

    def finish(self, call: Invocation) -> None:
        """Handle the end of a call."""


class Execution:
    """Runs calls to their end, possibly nested."""

    def __init__(self, objects: Objects, environments: Environments, lock: threading.Lock) -> None:
        self._objects = objects
        self.environments = environments
        self.lock = lock

    @contextmanager
    def isolate(self, settings: ProcessSettings) -> Iterator[None]:
        """Isolate code like a process: with its own settings, and outside of the caller's event loop."""
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
        """Run a call once and store its results; return its exception."""
        outer = sys.exception()
        call.begin(running)
        attempt = call.attempt
        try:
            with self.isolate(settings):
                values = Context().run(self._values, call, owner, running)
        except fatal_exceptions() as error:
            # Ctrl-C and the debugger's `quit` end the program, not the task.
            call.fail(Value.error(interruption_error(error)))
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
        """Return the values of a call's references from its return value."""
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
            return collect_yields(value, call.count, call.name, make, fail, retries)
        return [self.value(item, call.name) for item in check_returns(value, call.count, call.name)]

    def value(self, value: Any, name: str) -> Value:
        """Serialize a return value."""
        return self._objects.store(serialize_result(value, name))

    # ------------------------------------------------------------ generators

    def stream(self, call: Invocation, owner: CallOwner, running: Running, settings: ProcessSettings) -> None:
        """Run a generator as its items are requested."""
        GeneratorRun(self, call, owner, running, settings).start()


class GeneratorRun:
    """The body of a generator, suspended until the next item is requested."""

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
        self._index = 0  # index of the next item in this attempt
        self._busy = False
        assert call.stream is not None
        self._stream = call.stream

    def start(self) -> None:
        """Wait for the first request."""
        self._lend()  # it needs no CPU while suspended
        self._stream.on_closed = self.close
        self._stream.start(self.resume)
        if self._stream.closed:
            self.close()

    def resume(self) -> None:
        """Make the requested items."""
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
            self._stream.changed()  # for threads that could not resume it meanwhile

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
                    if self._index > self._stream.made:  # not an item of an earlier attempt
                        self._stream.add(item)
        except StopIteration:
            call.finish_stream()
            self._stream.end()
        except fatal_exceptions() as error:
            call.fail(Value.error(interruption_error(error)))
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
            self._generator = check_generator(self._owner.function(call)(*args, **kwargs), call.name)
        return [
            self._execution.value(item, call.name)
            for item in split_yield(next(self._generator), call.per_yield, call.name)
        ]

    def close(self) -> None:
        """End the generator, because the call is done or its reader is gone."""
        if self._busy:
            return  # `resume`, further down the stack, calls this again
        if not self._call.done:
            self._call.finish_stream()
            self._stream.end()
        generator, self._generator = self._generator, None
        if hasattr(generator, "close"):
            try:
                with self._execution.isolate(self._settings):
                    self._context.run(generator.close)
            except Exception:  # no caller is left to receive it
                logging.getLogger("skate").exception("Ending the generator of %s failed", self._call.name)
        self._owner.finish(self._call)


def interruption_error(error: BaseException) -> BaseException:
    """Return the error of a call that the user interrupted."""
    return exceptions.TaskCancelledError(None, f"It was ended by {type(error).__name__}.")
