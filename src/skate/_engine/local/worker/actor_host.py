"""A worker that hosts an actor: it creates the instance, receives calls, and answers them."""

from __future__ import annotations

import inspect
import os
import signal
import socket
import threading
import time
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from skate._base import errors as exceptions
from skate._base.exports import is_async
from skate._base.ids import CREATION
from skate._base.object_ref import ERROR
from skate._base.serialization import dumps
from skate._engine.common import error_types, signals
from skate._engine.common.calls import repr_of_actor
from skate._engine.common.outcomes import run_without_loop
from skate._engine.common.traced_calls import traced_method
from skate._engine.local.client.task_context import TaskContext, current_task
from skate._engine.local.client.wait_reports import Activity
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.frames import Connection
from skate._engine.local.worker.execution import PreparedFunction, bind_method, exit_process, matches
from skate._engine.local.worker.executors import (
    Executor,
    IncomingCall,
    LoopExecutor,
    MainThreadExecutor,
    ThreadExecutor,
    describe_executors,
    find_groups,
)
from skate._engine.local.worker.line_writer import announce_name
from skate._engine.local.worker.replies import Replies

if TYPE_CHECKING:
    from skate._engine.local.worker.main import Worker

DEFAULT = ""  # the group of calls that name no group
SYSTEM = "_ray_system"  # a group that every actor has
EXITED = "The actor exited by exit_actor() (INTENDED_USER_EXIT)."


class ActorHost:
    """Holds the actor's instance and runs its methods."""

    def __init__(
        self, worker: Worker, listener: socket.socket, message: m.Become, prepared: PreparedFunction
    ) -> None:
        self._worker = worker
        self._client = worker.client
        self._engine = worker.engine
        self._runner = worker.runner
        self._listener = listener
        self._message = message
        self._prepared = prepared
        self.options = message.options
        self.instance: Any = None
        self.class_name = prepared.template.name
        self._by_task: dict[bytes, IncomingCall] = {}
        self._group_of: dict[str, str] = {}
        self._bound: dict[str, Any] = {}
        self._executors: dict[str, Executor] = {}
        self._leaving = False  # ends after the calls that it has received
        self._exiting = False  # ends after the calls that it is running
        self._creating = True
        self._terminated = False  # received SIGTERM, and ends by it
        self._replies = Replies(self._client, self._runner)
        self._runner.backpressure.cap = message.options.generator_cap

    # ------------------------------------------------------------ lifecycle

    def run(self) -> int:
        """Create the instance, then serve calls until the end; return the exit code."""
        client = self._client
        signals.install(signal.SIGTERM, self._on_sigterm, signal.SIG_DFL)
        client.channel.handlers[m.CancelCall] = self._cancel
        client.channel.on_other = self._on_call
        self._engine.actor_handle = (self._message.actor, self.class_name)
        self._engine.stray_parent = self._stray_parent
        self._engine.stray_template = lambda: self._prepared.template
        self._engine.restarts = self._message.restarts
        self._engine.is_async_actor = self.options.is_async
        if self.options.is_async:
            created = self._serve_async()
        else:
            created = self._serve()
        if self._exiting and not self._terminated:
            # Only now, so that the calls that were running at the exit request are answered first.
            client.channel.hub.send_held_back()
            client.channel.send(m.ActorExit(self._message.actor, EXITED))
        if not created:
            return 1
        self._shutdown_instance()
        client.channel.hub.send_held_back()
        if self._terminated:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        return 0

    def _stray_parent(self) -> bytes:
        """Return the task that a thread of the user belongs to: the call, if only one can run."""
        creation = CREATION + self._message.actor
        alone = isinstance(self._executors.get(DEFAULT), MainThreadExecutor)
        return next(iter(self._by_task), creation) if alone else creation

    def _create(self) -> bool:
        """Create the instance of an actor without an event loop; return whether it succeeded."""
        return run_without_loop(self._construct())

    async def _construct(self) -> bool:
        """Run the constructor and report the outcome to the node; return whether it succeeded."""
        run = self._message.run
        name = f"{self.class_name}.__init__"
        self._worker.title.show(name)
        context = self._context(run.task, name, 0)
        context.resources = run.accelerators
        self._engine.accelerators = run.accelerators
        token = current_task.set(context)
        done = m.Done(run.task, [m.Result(1, dumps(None))], time.time())
        try:
            self._runner.set_devices(run.accelerators)
            kind, args, kwargs = self._runner.load(run, self._prepared.load_class)
            self.instance = kind.__new__(kind)
            self._engine.instance = self.instance
            self._group_of = find_groups(kind)
            construct = traced_method(self.instance.__init__, self.class_name, "__init__")
            returned = construct(*args, **kwargs)
            if self.options.is_async and inspect.isawaitable(returned):
                await returned
        except BaseException as error:
            if not context.exiting:
                if isinstance(error, SystemExit):
                    exit_process(error)
                cause = self._runner.task_error(error, name, self.instance, self._message.actor)
                done.failed = error_types.describe_failure(error_types.EXECUTION, cause.traceback_str)
                died = exceptions.ActorDiedError(cause, class_name=self.class_name)
                done.results = [m.Result(ERROR, dumps(died))]
        finally:
            current_task.reset(token)
            self._worker.title.show(self.class_name)
        if context.exiting:
            self._exiting = True
            return False
        self._creating = False
        done.seconds = time.time() - done.started
        done.repr = "" if done.failed else repr_of_actor(self.instance, self.class_name)
        self._client.channel.send(done)
        if not done.failed:
            announce_name(done.repr)
            self._client.channel.hub.add_callback(self._listener.fileno(), self._accept)
        return not done.failed

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return
        self._client.channel.hub.add(Connection(sock))

    def leave(self) -> None:
        """End after the calls that have been received."""
        self._leaving = True
        self._maybe_finish()

    def _maybe_finish(self) -> None:
        """End if nothing is left to do, after a call or a request to leave."""
        if self._leaving:
            executor = self._executors.get(DEFAULT)
            if isinstance(executor, LoopExecutor) and self._is_done():
                executor.finish()
            self._client.channel.hub.wake()

    def _is_done(self) -> bool:
        return self._leaving and not any(executor.busy() for executor in self._executors.values())

    def _shutdown_instance(self) -> None:
        """Call `__ray_shutdown__` of the instance, if it has one."""
        closer = getattr(self.instance, "__ray_shutdown__", None)
        if callable(closer):
            try:
                closer()
            except Exception:
                import logging

                logging.getLogger("skate").exception("__ray_shutdown__ of %s failed", self.class_name)

    def _exit_by_user(self) -> None:
        """Handle exit_actor(): the actor does not restart, and waiting calls do not run."""
        self._exiting = True
        self.leave()

    def _on_sigterm(self, *_: Any) -> None:
        """Handle SIGTERM: end after the calls that are running."""
        self._terminated = self._exiting = True
        self.leave()

    # ------------------------------------------------------------ serving

    def _serve(self) -> bool:
        """Serve calls in threads; in the main thread unless the actor is concurrent."""
        hub = self._client.channel.hub
        # The executors first: calls may arrive as soon as the constructor has run.
        if self.options.max_concurrency > 1 or self.options.groups:
            self._executors[DEFAULT] = self._thread_executor(self.options.max_concurrency)
            for name, size in self.options.groups.items():
                self._executors[name] = self._thread_executor(size)
            if self._create():
                hub.attend(self._is_done)
                return True
            return False
        main = MainThreadExecutor()
        self._executors[DEFAULT] = main
        if not self._create():
            return False
        calls = main.calls
        title = self._worker.title
        while not self._exiting:
            if calls:
                incoming = calls.popleft()
                title.show(incoming.name)
                self.run_call(incoming)
            elif self._is_done():
                break
            else:
                self._client.channel.flush_reports()
                title.show(self.class_name)
                hub.attend(lambda: bool(calls) or self._is_done())
        return True

    def _thread_executor(self, size: int) -> ThreadExecutor:
        return ThreadExecutor(self.run_call, size, self._maybe_finish)

    def _loop_executor(self, size: int) -> LoopExecutor:
        return LoopExecutor(self.run_async, size, self._maybe_finish, self._never_ran)

    def _never_ran(self, incoming: IncomingCall) -> None:
        """Reply to a call that was cancelled before it ran."""
        if not incoming.cancelled:
            return
        self._by_task.pop(incoming.call.task, None)
        self._runner.backpressure.ended(incoming.call.task)
        cancelled = incoming.fill(self._runner.cancelled_result(incoming.call.task, incoming.name))
        self._client.channel.hub.send(incoming.connection, m.Reply(incoming.call.task, cancelled))

    def _serve_async(self) -> bool:
        """Serve calls in event loops: one in the main thread, or one per concurrency group."""
        self._runner.backpressure.on_moved = self._replies.reader_moved
        default = self._loop_executor(self.options.max_concurrency)
        self._executors[DEFAULT] = default
        if not self.options.groups:
            self._client.references.on_await = default.on_await(self._client.waits.watch)
            self._client.waits.known_futures = default.futures
            return default.serve(self._construct, self._client.channel.hub)
        default.start_thread("default")
        for name, size in self.options.groups.items():
            executor = self._executors[name] = self._loop_executor(size)
            executor.start_thread(name)
        if not default.run(self._construct()):
            return False
        self._client.channel.hub.attend(self._is_done)
        return True

    # ------------------------------------------------------------ receiving

    def _on_call(self, connection: Connection, messages: list[Any]) -> None:
        for message in messages:
            if type(message) is m.Call:
                incoming = IncomingCall(message, connection, self.class_name, recorded=self.options.events)
                self._by_task[message.task] = incoming
                if message.num_returns == m.STREAMING:
                    self._runner.backpressure.expect_reader(message.task, message.taken)
                executor = self._executor_for(message)
                if executor is None:
                    self._refuse_group(incoming)
                else:
                    executor.put(incoming)
            elif type(message) is m.Introduce:
                connection.label = message.caller

    def _refuse_group(self, incoming: IncomingCall) -> None:
        call = incoming.call
        known = ", ".join(sorted(self.options.groups)) or "none"
        error = ValueError(
            f"{incoming.name} has no concurrency group {call.group!r}; its groups are: {known}."
        )
        self._by_task.pop(call.task, None)
        self._runner.backpressure.ended(call.task)
        failure = self._runner.failure(error, incoming.name, self.instance, self._message.actor)
        self._client.channel.hub.send(incoming.connection, m.Reply(call.task, incoming.fill(failure)))

    def _executor_for(self, call: m.Call) -> Executor | None:
        executors = self._executors
        if len(executors) == 1 and not call.group:
            return executors[DEFAULT]
        name = call.group or self._group_of.get(call.method, DEFAULT)
        executor = executors.get(name)
        # Every actor has this group; its thread starts with the first call.
        if executor is None and name == SYSTEM:
            executor = executors[name] = self._thread_executor(1)
        return executor

    def _cancel(self, message: m.CancelCall) -> None:
        incoming = self._by_task.get(message.task)
        if incoming is None:
            return
        incoming.cancelled = True
        if not incoming.started and incoming.task is None:
            self._never_ran(incoming)  # it has not started, so its caller need not wait
            return
        context = incoming.context
        children: list[bytes] = []
        if context is not None:
            context.cancelled = True
            if message.recursive:
                children = list(context.children)
        if incoming.task is not None:
            self._client.call_in_loop(incoming.loop, incoming.task.cancel)
        for child in children:  # last: a call that waits for one should see that it was cancelled itself
            self._engine.cancel_by_id(child, force=False, recursive=True)

    def activity(self, waiting: set[bytes]) -> Activity | None:
        """Return the actor's activity apart from the calls that wait; None while it runs code."""
        if (
            self._leaving
            or self._exiting
            or (self._creating and CREATION + self._message.actor not in waiting)
        ):
            return None
        found = describe_executors(list(self._executors.values()), self._executor_for, self._by_task, waiting)
        if found is not None and self._creating:
            found.resting.discard(threading.main_thread().ident or 0)
            found.takes_calls = False
        return found

    def in_progress(self) -> list[Any]:
        """Return rows of unfinished calls for the state API."""
        row = self._worker.events.running
        return [row(each) for each in list(self._by_task.values()) if each.recorded]

    # ------------------------------------------------------------ running a call

    def _context(self, task: bytes, name: str, depth: int) -> TaskContext:
        context = TaskContext(task, name, depth)
        context.template = self._prepared.template
        return context

    def _begin(self, incoming: IncomingCall) -> TaskContext:
        call = incoming.call
        context = self._context(call.task, incoming.name, call.depth)
        context.attempt = call.attempt
        context.cancelled = incoming.cancelled
        context.resources = self._engine.accelerators
        incoming.context = context
        incoming.started = time.time()
        return context

    def run_call(self, incoming: IncomingCall) -> None:
        """Run a call in this thread and reply."""
        if self._exiting or incoming.call.task not in self._by_task:  # exiting, or cancelled while it waited
            return
        context = self._begin(incoming)
        call = incoming.call
        reply = m.Reply(call.task, [])
        token = current_task.set(context)
        failed = ""
        try:
            if incoming.cancelled:
                raise exceptions.TaskCancelledError(call.task.hex())
            method = self._method(call.method)
            args, kwargs = self._runner.arguments(call.args, call.arguments, call.args_object)
            value = method(*args, **kwargs)
            args = kwargs = None  # type: ignore[assignment]  # released before the caller gets the reply
            self._collect(incoming, reply, value)
            value = None
        except BaseException as error:
            failed = self._call_failed(incoming, reply, error)
        finally:
            current_task.reset(token)
        self._end(incoming, reply, context, failed)

    async def run_async(self, incoming: IncomingCall) -> None:
        """Run a call in this event loop and reply."""
        if self._exiting or incoming.call.task not in self._by_task:  # exiting, or cancelled while it waited
            return
        call = incoming.call
        method = getattr(type(self.instance), call.method, None)
        if method is None or not is_async(method):
            self.run_call(incoming)
            return
        import asyncio

        context = self._begin(incoming)
        current_task.set(context)  # each asyncio task has its own context
        reply = m.Reply(call.task, [])
        failed = ""
        try:
            args, kwargs = self._runner.arguments(call.args, call.arguments, call.args_object)
            value = self._method(call.method)(*args, **kwargs)
            if hasattr(value, "__anext__"):
                reply.count = await self._replies.stream(incoming, value)
            else:
                value = await value
                self._collect(incoming, reply, value)
        except asyncio.CancelledError as error:
            if (self._leaving or self._exiting) and not incoming.cancelled:
                return  # cancelled by the end of the actor
            failed = error_types.CANCELLED
            reply.count = self._runner.backpressure.made(call.task)
            reply.results = incoming.fill(self._runner.cancelled_result(call.task, incoming.name, error))
        except BaseException as error:
            failed = self._call_failed(incoming, reply, error)
        self._end(incoming, reply, context, failed)

    def _collect(self, incoming: IncomingCall, reply: m.Reply, value: Any) -> None:
        call = incoming.call
        if call.num_returns == 1 and type(value) is not GeneratorType:
            reply.results = [self._runner.result(value, incoming.name)]
        elif call.num_returns == m.STREAMING:
            if not hasattr(value, "__next__"):
                raise TypeError(
                    f"{incoming.name} has num_returns='streaming', so it must return a generator."
                )
            reply.count = self._runner.stream(
                call.task,
                value,
                incoming.name,
                incoming.options["window"],
                incoming.options["per_yield"],
                lambda index, result: self._replies.item(incoming, index, result),
            )
        else:
            reply.results = self._runner.results(
                call.task,
                self._method(call.method),
                value,
                call.num_returns,
                incoming.name,
                lambda error: matches(error, incoming.options["retry"]),
            )

    def _call_failed(self, incoming: IncomingCall, reply: m.Reply, error: BaseException) -> str:
        call = incoming.call
        reply.count = self._runner.backpressure.made(call.task)
        context = incoming.context
        if isinstance(error, SystemExit) and not (context is not None and context.exiting):
            self._worker.exit_in_call(incoming, error)
        if isinstance(error, exceptions.TaskCancelledError) and incoming.cancelled:
            reply.results = incoming.fill(self._runner.cancelled_result(call.task, incoming.name, error))
            failed = error_types.CANCELLED
        else:
            cause = self._runner.task_error(error, incoming.name, self.instance, self._message.actor)
            result = m.Result(ERROR, dumps(cause))
            failed = error_types.describe_failure(error_types.EXECUTION, cause.traceback_str)
            reply.retry = matches(error, incoming.options["retry"])
            missing = self._runner.backpressure.missing(call.task)
            reply.results = [result] * missing if call.num_returns == m.STREAMING else incoming.fill(result)
        return failed

    def _end(self, incoming: IncomingCall, reply: m.Reply, context: TaskContext, failed: str) -> None:
        call = incoming.call
        if self._client.channel.closed:
            os._exit(0)  # the method has forked, and this child reached its end
        self._by_task.pop(call.task, None)
        self._runner.backpressure.ended(call.task)
        leaving = context.exiting
        if incoming.cancelled:
            reply.retry = False
        # A cancelled call fails even if the method handled the cancellation.
        if incoming.cancelled and failed != error_types.CANCELLED:
            reply.results = incoming.fill(self._runner.cancelled_result(call.task, incoming.name))
        if leaving:  # even if user code caught the exception of exit_actor()
            failed = ""  # the call did what it was for
            reply.retry = False
            actor = self._message.actor.hex()
            died = exceptions.ActorDiedError(EXITED, actor_id=actor, class_name=self.class_name)
            reply.results = incoming.fill(m.Result(ERROR, dumps(died)))
        self._worker.events.add(incoming, time.time(), failed)
        self._replies.reply(incoming, reply, context)
        if leaving:
            self._exit_by_user()

    def _method(self, name: str) -> Any:
        bound = self._bound.get(name)
        if bound is None:
            bound = self._bound[name] = traced_method(self._bind(name), self.class_name, name)
        return bound

    def _bind(self, name: str) -> Any:
        if name == "__ray_ready__":
            return lambda: True
        if name == "__ray_call__":
            return lambda function, *args, **kwargs: function(self.instance, *args, **kwargs)
        if name == "__ray_terminate__":
            return self._engine.exit_actor
        return bind_method(self.instance, name)
