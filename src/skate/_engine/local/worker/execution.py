"""Running user code: arguments in, results or errors out."""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any, NoReturn, TypeVar

from skate._base import errors as exceptions
from skate._base import ids
from skate._base.accelerators import device_variables
from skate._base.generator import DynamicObjectRefGenerator
from skate._base.object_ref import ERROR, INLINE, SHARED
from skate._base.serialization import NO_ARGUMENTS, PLAIN, dumps, loads, serialize
from skate._engine.common import error_types
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
from skate._engine.common.traced_calls import traced_function
from skate._engine.common.values import INLINE_LIMIT
from skate._engine.local.client.client import Client
from skate._engine.local.client.engine import LocalEngine
from skate._engine.local.client.task_context import TaskContext, current_task
from skate._engine.local.wire import messages as m
from skate._engine.local.worker.backpressure import Backpressure
from skate._engine.local.worker.imports import ImportWatch

__all__ = ["ExitRequest", "PreparedFunction", "TaskRunner", "matches"]

T = TypeVar("T")


class PreparedFunction:
    """A template in a worker; the function is unpickled at its first use."""

    __slots__ = ("_function", "_retry", "code", "template")

    def __init__(self, template: m.TaskTemplate, code: bytes) -> None:
        self.template = template
        self.code = code
        self._function: Any = None
        self._retry: Any = None

    @property
    def function(self) -> Any:
        """The function of a task."""
        if self._function is None:
            template = self.template
            self._function = traced_function(loads(self.code), template.module, template.qualname)
        return self._function

    @property
    def is_loaded(self) -> bool:
        """Whether the function of a task has been unpickled."""
        return self._function is not None

    def load_class(self) -> Any:
        """Return the class of an actor."""
        return loads(self.code)

    def retries(self, error: BaseException) -> bool:
        """Return whether the template retries after this exception."""
        if not self.template.retry_exceptions:
            return False
        if self._retry is None:
            self._retry = loads(self.template.retry_exceptions)
        return matches(error, self._retry)


class TaskRunner:
    """Runs functions with the arguments of a message."""

    def __init__(self, client: Client, engine: LocalEngine) -> None:
        self._client = client
        self._engine = engine
        self.backpressure = Backpressure()
        self.exit_code: int | None = None

    # ------------------------------------------------------------ arguments

    def arguments(
        self, data: bytes, given: list[m.Argument], args_object: bytes
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and keyword arguments of a call."""
        client = self._client
        if args_object:
            args, kwargs = client.value_of(client.expect(args_object))
        else:
            args, kwargs = ((), None) if data == NO_ARGUMENTS else loads(data)
        if not given:
            return args, kwargs or {}
        args = list(args)
        kwargs = dict(kwargs or {})
        for argument in given:
            if argument.state == SHARED:
                value = client.value_of(client.expect(argument.id))
            else:
                value = loads(argument.data)
            if isinstance(argument.slot, int):
                args[argument.slot] = value
            else:
                kwargs[argument.slot] = value
        return args, kwargs

    def load(self, run: m.Run, load: Callable[[], T]) -> tuple[T, list[Any], dict[str, Any]]:
        """Load code for the first time, and its arguments; report modules that this has imported."""
        with ImportWatch() as watch:
            loaded = load()
            args, kwargs = self.arguments(run.args, run.arguments, run.args_object)
        if watch.modules:
            self._client.channel.send(m.Imported(run.template, watch.modules, watch.seconds))
        return loaded, args, kwargs

    def set_devices(self, accelerators: dict[str, list[str]]) -> None:
        """Limit the process to the accelerators that it may use."""
        os.environ.update(device_variables(accelerators))

    # ------------------------------------------------------------ tasks

    def run_task(self, run: m.Run, prepared: PreparedFunction, task: TaskContext) -> m.Done:
        """Run a task and return the message with its outcome."""
        template = prepared.template
        started = time.time()
        begun = time.perf_counter()
        count = template.num_returns
        done = m.Done(run.task, [], started)
        if run.accelerators:
            self.set_devices(run.accelerators)
        task.resources = run.accelerators
        try:
            if prepared.is_loaded:
                function = prepared.function
                args, kwargs = self.arguments(run.args, run.arguments, run.args_object)
            else:
                function, args, kwargs = self.load(run, lambda: prepared.function)
            value = function(*args, **kwargs)
            if count == 1 and type(value) is not GeneratorType:
                done.results = [self.result(value, template.name)]
            elif count == m.STREAMING:
                send = self._client.channel.send
                done.count = self._stream(
                    run.task, value, template, lambda i, r: send(m.Item(run.task, i, r))
                )
            else:
                done.results = self.results(run.task, function, value, count, template.name, prepared.retries)
        except BaseException as error:
            self._task_failed(error, done, prepared, task)
            done.count = self.backpressure.made(run.task)
        finally:
            self.backpressure.ended(run.task)
        done.seconds = time.perf_counter() - begun
        return done

    def _task_failed(
        self, error: BaseException, done: m.Done, prepared: PreparedFunction, task: TaskContext
    ) -> None:
        template = prepared.template
        cancelled = task.cancelled and isinstance(error, exceptions.TaskCancelledError)
        if cancelled or isinstance(error, KeyboardInterrupt):
            done.results = [self.cancelled_result(done.task, template.name, error)] * max(
                1, template.num_returns
            )
            done.failed = error_types.CANCELLED
            return
        if isinstance(error, SystemExit):
            # The function ends the interpreter: the node detects the end of this worker and reports it.
            code = error.code
            self.exit_code = code if isinstance(code, int) else (0 if code is None else 1)
            if isinstance(code, str):
                sys.stderr.write(code + "\n")
            return
        reported = self.task_error(error, template.name)
        done.failed = error_types.describe_failure(error_types.EXECUTION, reported.traceback_str)
        done.retry = prepared.retries(error)
        count = (
            self.backpressure.missing(done.task)
            if template.num_returns == m.STREAMING
            else template.num_returns
        )
        done.results = [m.Result(ERROR, dumps(reported))] * max(1, count)

    def cancelled_result(self, task: bytes, name: str = "", at: BaseException | None = None) -> m.Result:
        """Return the result of a cancelled task.

        Args:
            task: The task.
            name: Its name if it was running or is an actor's call; the error is then a task error as well.
            at: The exception that ended it, whose traceback shows where it was.
        """
        error = exceptions.TaskCancelledError(task.hex())
        if not name:
            return m.Result(ERROR, dumps(error))
        return self.failure(error.with_traceback(None if at is None else at.__traceback__), name)

    # ------------------------------------------------------------ results

    def result(self, value: Any, name: str) -> m.Result:
        """Return a value as a part of a message."""
        if type(value) in PLAIN:
            data = dumps(value)
            if len(data) <= INLINE_LIMIT:
                return m.Result(INLINE, data)
        return self._client.result_of(serialize_result(value, name))

    def results(
        self,
        task: bytes,
        function: Callable[..., Any],
        value: Any,
        count: int,
        name: str,
        retries: Callable[[BaseException], bool],
    ) -> list[m.Result]:
        """Return the values of a call that returned a generator, or that has several results or none.

        `retries` returns whether the call runs again after an error.
        """
        if count == 0:
            return []
        if count == 1:
            check_yields(function, name)
        if count == m.DYNAMIC:
            client = self._client

            def put(index: int, item: Any) -> Any:
                return client.put_serialized(ids.object_id(task, index), serialize(item))

            def put_error(index: int, error: BaseException) -> Any:
                return client.put_error(ids.object_id(task, index), dumps(task_error(error, name)))

            made = put_each(value, put, put_error, retries)
            return [self.result(DynamicObjectRefGenerator(made), name)]

        def make(item: Any) -> m.Result:
            return self.result(item, name)

        if hasattr(value, "__next__"):
            return collect_yields(value, count, name, make, lambda error: self.failure(error, name), retries)
        return [make(item) for item in check_returns(value, count, name)]

    def failure(self, error: BaseException, name: str, actor: Any = None, actor_id: bytes = b"") -> m.Result:
        """Return an exception as a part of a message."""
        return m.Result(ERROR, dumps(self.task_error(error, name, actor, actor_id)))

    task_error = staticmethod(task_error)

    # ------------------------------------------------------------ generators

    def _stream(
        self, task: bytes, generator: Any, template: m.TaskTemplate, send: Callable[[int, m.Result], None]
    ) -> int:
        check_generator(generator, template.name)
        return self.stream(task, generator, template.name, template.backpressure, template.per_yield, send)

    def stream(
        self,
        task: bytes,
        generator: Iterator[Any],
        name: str,
        window: int,
        per_yield: int,
        send: Callable[[int, m.Result], None],
    ) -> int:
        """Send the items of a generator one by one; return their number."""
        gate = self.backpressure
        gate.open(task, window)
        running = current_task.get()
        while True:
            if not gate.may_continue(task):
                self._wait_for_reader(task)
            if gate.is_closed(task):
                close = getattr(generator, "close", None)
                if close is not None:
                    close()
                break
            gate.begin(task)
            try:
                value = next(generator)
            except StopIteration:
                break
            items = self.split_yield(value, per_yield, name)
            for position, item in enumerate(items):
                gate.expect(task, len(items) - position)
                result = self.result(item, name)
                gate.add(task)
                send(gate.made(task), result)
            gate.expect(task, 1)
            if running is not None:
                running.keep.clear()
        return gate.made(task)

    split_yield = staticmethod(split_yield)

    def _wait_for_reader(self, task: bytes) -> None:
        client = self._client
        client.block([], lambda: self.backpressure.may_continue(task) or bool(client.channel.closed), None)


def bind_method(instance: Any, name: str) -> Any:
    """Return a method of the class, even if an attribute of the instance has the same name."""
    kind = type(instance)
    member = inspect.getattr_static(kind, name, None)
    if member is None:
        raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")
    return member.__get__(instance, kind) if hasattr(member, "__get__") else member


def exit_process(error: SystemExit) -> NoReturn:
    """End the process after sys.exit() in a method; the node treats this as the actor's death."""
    code = error.code
    if isinstance(code, str):
        sys.stderr.write(code + "\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else (0 if code is None else 1))
