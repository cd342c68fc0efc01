"""A worker process: it runs tasks, or becomes an actor."""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NoReturn

from skate._base import errors as exceptions
from skate._base import tracing
from skate._base.object_ref import INLINE
from skate._engine.common import error_types, signals
from skate._engine.common.platform import system
from skate._engine.common.traced_calls import traced_engine
from skate._engine.local.client.client import Client
from skate._engine.local.client.engine import LocalEngine
from skate._engine.local.client.task_context import TaskContext, current_task
from skate._engine.local.client.wait_reports import Activity
from skate._engine.local.session.task_progress import TaskProgress
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.frames import Connection, unpack
from skate._engine.local.wire.interrupts import Interrupts
from skate._engine.local.wire.unix_sockets import bind, connect
from skate._engine.local.worker import surroundings
from skate._engine.local.worker.execution import PreparedFunction, TaskRunner, exit_process
from skate._engine.local.worker.line_writer import LineWriter, end_lines
from skate._engine.local.worker.process_title import IDLE, ProcessTitle

if TYPE_CHECKING:
    from skate._engine.local.worker.executors import IncomingCall

MAX_COALESCED_RESULTS = 32  # results of short tasks that may be sent together
MAX_RESULT_DELAY_S = 0.0005  # seconds of work after which results are sent
MAX_CALLS_KEPT = 10_000  # finished calls of an actor that wait for the node's request

Row = tuple[bytes, str, str, float, float, str, str]


class EventLog:
    """The finished calls of an actor since the node's last request. Costs a call one append."""

    def __init__(self) -> None:
        self._rows: deque[Row] = deque(maxlen=MAX_CALLS_KEPT)

    def add(self, call: IncomingCall, ended: float, failed: str) -> None:
        """Add a finished call, unless its options disable it."""
        if not call.recorded:
            return
        state = "FAILED" if failed else "FINISHED"
        self._rows.append((call.call.task, call.name, "ACTOR_TASK", call.started, ended, state, failed))

    @staticmethod
    def running(call: IncomingCall) -> Row:
        """Return the row of an unfinished call."""
        state = "RUNNING" if call.started else "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY"
        return (call.call.task, call.name, "ACTOR_TASK", call.started, 0.0, state, "")

    def take(self) -> list[Row]:
        """Remove and return the rows."""
        rows = []
        while self._rows:
            rows.append(self._rows.popleft())
        return rows


class Worker:
    """The main thread runs tasks and calls; a second thread reads the sockets meanwhile."""

    def __init__(
        self,
        client: Client,
        engine: LocalEngine,
        listener: socket.socket,
        progress: TaskProgress,
        title: ProcessTitle,
    ) -> None:
        self.client = client
        self.engine = engine
        self.runner = TaskRunner(client, engine)
        self.events = EventLog()
        self.title = title
        self.queue: deque[Any] = deque()
        self.running: TaskContext | None = None
        self.leaving = ""
        self.exit_code = 0
        self._listener = listener
        self._unsent = 0
        self._unsent_seconds = 0.0
        self._progress = progress
        self._templates: dict[int, PreparedFunction] = {}
        self._calls: dict[bytes, int] = {}  # function -> number of runs, for max_calls
        self._interrupt: bytes | None = None
        self._events_lock = threading.Lock()
        self._main = threading.main_thread().ident or 0
        self.actor: Any = None
        engine.stray_parent = self._stray_parent
        engine.stray_template = self._stray_template
        client.before_blocking = self._before_blocking
        client.waits.activity = self._activity
        client.channel.on_node_closed = self._node_gone
        client.channel.handlers.update(
            {
                m.Run: self._queue,
                m.RunMany: self._queue_many,
                m.Become: self.queue.append,
                m.Define: self._define,
                m.Recall: lambda _: self._hand_back(),
                m.CancelRunning: self._cancel,
                m.Exit: self._exit,
                m.Consumed: self.runner.backpressure.consumed,
                m.SendEvents: self._send_events,
            }
        )

    # ------------------------------------------------------------ messages

    def _define(self, message: m.Define) -> None:
        self._templates[message.number] = PreparedFunction(message.template, message.code)

    def _queue(self, run: m.Run) -> None:
        if self._templates[run.template].template.num_returns == m.STREAMING:
            self.runner.backpressure.expect_reader(run.task)  # the next message may be a report of its reader
        self.queue.append(run)

    def _queue_many(self, message: m.RunMany) -> None:
        template, depth = message.template, message.depth
        for task, args in zip(message.tasks, message.args, strict=True):
            self.queue.append(m.Run(task, template, args, depth=depth))

    def _hand_back(self) -> None:
        """Return tasks that have not started to the node, which gives them to other workers."""
        back = []
        while self.queue:
            try:
                run = self.queue.pop()
            except IndexError:
                break
            if isinstance(run, m.Run):
                back.append(run.task)
                self.runner.backpressure.ended(run.task)
            else:
                self.queue.append(run)
                break
        if back:
            self.client.channel.send(m.HandBack(back[::-1]))
        self.client.channel.flush()  # the next task may end this process

    def _cancel(self, message: m.CancelRunning) -> None:
        for run in list(self.queue):
            if isinstance(run, m.Run) and run.task == message.task:
                try:
                    self.queue.remove(run)
                except ValueError:
                    break
                self.runner.backpressure.ended(run.task)
                self.client.channel.send(
                    m.Done(run.task, [self.runner.cancelled_result(run.task)], failed=error_types.CANCELLED)
                )
                return
        running = self.running
        if running is not None and running.task == message.task:
            running.cancel()
            self._interrupt = message.task
            signal.pthread_kill(self._main, signal.SIGINT)
            if message.recursive and running.children:
                running.cancel_children(self.engine.cancel_by_id)
        else:
            self.client.channel.flush()  # the result may be held back to be sent with others

    def on_interrupt(self, *_: Any) -> None:
        """Raise KeyboardInterrupt in the task to cancel, and in no other task."""
        running = self.running
        if running is not None and running.task == self._interrupt:
            self._interrupt = None
            running.note_interrupt()
            raise KeyboardInterrupt

    def _exit(self, message: m.Exit) -> None:
        self.leaving = message.reason or "requested"
        self.exit_code = message.code
        if self.actor is not None:
            self.actor.leave()

    def _send_events(self, message: m.SendEvents) -> None:
        with self._events_lock:  # the main thread may be about to end the process
            rows = self.events.take()
            if self.actor is not None:
                rows += self.actor.in_progress()
            self.client.channel.send(m.Events(rows, message.request))

    def exit_in_call(self, call: IncomingCall, error: SystemExit) -> NoReturn:
        """End the process as a method of the actor asks, after the node has heard of its calls."""
        text = (
            "" if error.code in (None, 0) else f"The method ended its process with sys.exit({error.code!r})."
        )
        self.events.add(
            call, time.time(), error_types.describe_failure(error_types.ACTOR_DIED, text) if text else ""
        )
        with self._events_lock:
            self.client.channel.send(m.Events(self.events.take()))
            self.client.channel.hub.send_held_back()
        exit_process(error)

    def send_final_events(self) -> None:
        """Send the remaining events and releases, and announce the end of the process."""
        with self._events_lock:
            rows = self.events.take()
            if rows:
                self.client.channel.send(m.Events(rows))
            self.client.channel.flush_reports()
            self.client.channel.send(m.Goodbye())
            self.client.channel.hub.send_held_back()

    def _stray_parent(self) -> bytes:
        """Return the task that a thread of the user belongs to: the running one."""
        running = self.running
        return b"" if running is None else running.task

    def _stray_template(self) -> m.TaskTemplate | None:
        running = self.running
        return None if running is None else running.template

    def _node_gone(self) -> None:
        os._exit(1)

    def _activity(self, waiting: set[bytes]) -> Activity | None:
        """Return the activity of the process apart from the tasks that wait; None while it runs code."""
        if self.actor is not None:
            return self.actor.activity(waiting)  # type: ignore[no-any-return]
        if self.queue or self.leaving or (self.running is not None and self.running.task not in waiting):
            return None
        return Activity(resting=() if self.running is not None else (self._main,))

    def _before_blocking(self, references: list[Any], timed: bool) -> Any:
        """Notify the node that this worker is blocked; return the function that revokes it."""
        running = current_task.get()
        if running is None:
            return None
        if self.queue and self.actor is None:
            self._hand_back()
        client = self.client
        client.channel.send(m.Blocked(running.task, [reference._id for reference in references[:100]], timed))

        def resume() -> None:
            if not client.channel.closed:
                client.channel.send(m.Unblocked(running.task))

        return resume

    # ------------------------------------------------------------ running

    def run(self) -> int:
        """Run tasks until the worker leaves; return the exit code."""
        hub = self.client.channel.hub
        queue = self.queue
        while not self.leaving:
            if not queue:
                self.client.mappings.tidy()
                self.client.channel.flush_reports()
                self.title.show(IDLE)
                hub.attend(lambda: bool(queue) or bool(self.leaving))
                continue
            message = queue.popleft()
            if type(message) is m.Run:
                self._task(message)
            else:
                return self._become(message)
        return self.exit_code

    def _task(self, run: m.Run) -> None:
        prepared = self._templates[run.template]
        task = TaskContext(run.task, prepared.template.name, run.depth)
        task.template = prepared.template
        task.attempt = run.attempt
        self.running = task
        self.title.show(prepared.template.name)
        self._progress.begin(run.task, run.attempt)
        token = current_task.set(task)
        try:
            done = self.runner.run_task(run, prepared, task)
            end_lines()
        except KeyboardInterrupt:  # cancelled at the moment of its end
            count = max(1, prepared.template.num_returns)
            done = m.Done(
                run.task, [self.runner.cancelled_result(run.task)] * count, failed=error_types.CANCELLED
            )
        finally:
            self.running = None
            current_task.reset(token)
        limit = prepared.template.max_calls
        if limit:
            key = prepared.template.function
            self._calls[key] = count = self._calls.get(key, 0) + 1
            if count >= limit:
                done.last = True
                self.leaving = "max_calls"
        client = self.client
        if client.channel.closed:
            os._exit(0)  # the function has forked, and this child reached its end
        if self.runner.exit_code is not None:
            self.leaving = "exit"
            self.exit_code = self.runner.exit_code
            client.channel.flush()
            return
        last = self.leaving or run.attempt == prepared.template.max_retries
        self._unsent += 1
        self._unsent_seconds += done.seconds
        if _is_small_value(done):
            client.channel.post_value(done.task, done.results[0].data, done.started, done.seconds)
        else:
            client.channel.post(done)
        if (
            not self.queue
            or self._unsent > MAX_COALESCED_RESULTS
            or self._unsent_seconds >= MAX_RESULT_DELAY_S
            or last
        ):
            self._unsent = 0
            self._unsent_seconds = 0.0
            client.channel.send_results()  # the next task may end this process

    def _become(self, message: m.Become) -> int:
        from skate._engine.local.worker.actor_host import ActorHost

        self._progress.begin(message.run.task, message.run.attempt)
        self.actor = ActorHost(self, self._listener, message, self._templates[message.run.template])
        return int(self.actor.run())


def _is_small_value(done: m.Done) -> bool:
    """Return whether a task has returned one value that the message itself contains."""
    if len(done.results) != 1 or done.failed or done.last or done.count:
        return False
    result = done.results[0]
    return result.state == INLINE and not result.contains


def main(request: dict[str, Any], descriptors: list[int]) -> int:
    """Set up the process, and run as a worker."""
    _set_up_output(descriptors)
    os.setpgid(0, 0)
    system.prefer_in_oom_kill()  # it can be replaced, and the driver and the node cannot
    session, number = request["session"], request["number"]
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    address = os.path.join(session, f"w{number}.sock")
    bind(listener, address)
    listener.listen(128)
    listener.setblocking(False)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connect(sock, os.path.join(session, "node.sock"))
    connection = Connection(sock)
    welcome = m.Welcome(
        number,
        request["job"],
        session,
        request["node_id"],
        request["namespace"],
        {},
        request["labels"],
    )
    client = Client(connection, welcome, request["shm"])
    metadata = request["info"].get("metadata") or {}
    tracing_hook = metadata.get(tracing.HOOK)
    engine = (traced_engine(LocalEngine) if tracing_hook else LocalEngine)(client)
    as_ray = bool(metadata.get("as_ray"))
    title = ProcessTitle("ray" if as_ray else "skate")
    worker = Worker(client, engine, listener, TaskProgress(client.files.session, number), title)
    Interrupts(worker.on_interrupt, spare_imports=True).install(always=True)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signals.own_wakeup_descriptor()
    faulthandler.register(signal.SIGUSR1)  # used by `skate stack`
    _adopt_job(request, engine)
    client.record_creation_sites()  # the job may set the variables
    from skate._engine import adopt

    adopt(engine)
    try:
        _run_hooks(tracing_hook, request.get("setup_hook"))
    except exceptions.RuntimeEnvSetupError as error:
        connection.post(m.Hello("worker", os.getpid(), number, address, failed=error.error_message or ""))
        client.channel.hub.flush(connection)
        return 1
    try:
        client.channel.hub.start_thread()
    except OSError as error:
        connection.post(m.Hello("worker", os.getpid(), number, address, refused=str(error.strerror)))
        client.channel.hub.flush(connection)
        return 1
    connection.post(m.Hello("worker", os.getpid(), number, address))
    client.channel.hub.flush(connection)
    code = 1
    try:
        code = worker.run()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    _shut_down(worker)
    return code


def _run_hooks(tracing_hook: str | None, setup_hook: str | None) -> None:
    """Run the startup hooks of the job and of the runtime environment.

    Raises:
        RuntimeEnvSetupError: A hook cannot be loaded, or it raised.
    """
    if tracing_hook:
        try:
            tracing.enable(tracing_hook)
        except Exception as error:
            from skate._base.errors.rendering import render_exception

            raise exceptions.RuntimeEnvSetupError(
                f"The tracing startup hook {tracing_hook!r} failed in a worker:\n{render_exception(error)}"
            ) from error
    if setup_hook:
        from skate._engine.common.environments import run_setup_hook

        run_setup_hook(setup_hook)


def _set_up_output(descriptors: list[int]) -> None:
    """Send the output of this process to the node, line by line."""
    if descriptors:
        os.dup2(descriptors[0], 1)
        os.dup2(descriptors[1], 2)
        for descriptor in descriptors:
            os.close(descriptor)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - lives as long as the process
    sys.stdout = LineWriter(1)
    sys.stderr = LineWriter(2)


def _adopt_job(request: dict[str, Any], engine: LocalEngine) -> None:
    """Adopt the surroundings of the driver, and what its job sets for the engine."""
    surroundings.adopt(request)
    engine.environment = (request.get("environment") or {}).get("original") or {}
    job = request["info"]
    metadata = job.get("metadata") or {}
    engine.default_lifetime = metadata.get("default_actor_lifetime", "")
    engine.driver_has_terminal = bool(job.get("terminal"))
    if "logging_config" in metadata:
        from skate._engine.common.log_context import log_as

        log_as(metadata["logging_config"], engine.context)
    engine.environment_resolver = _resolver(engine, request)


def _resolver(engine: LocalEngine, request: dict[str, Any]) -> Any:
    from skate._engine.local.client.job import environment_resolver

    return environment_resolver(
        engine, request["info"].get("runtime_env") or {}, inherited=engine.environment
    )


def _shut_down(worker: Worker) -> None:
    """End like a normal program: run exit handlers, send pending calls, and flush output and events."""
    import atexit

    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if not worker.client.channel.closed:
        worker.engine.links.wait_until_sent()
        worker.client.references.hand_over()
        worker.send_final_events()


def main_of_spawned(path: str) -> None:
    """Run as a worker that was not forked from the template."""
    from skate._engine.local.worker.template import load_api

    system.adopt_input()
    system.die_with_parent(os.getppid())
    load_api()
    code = main(_load_request(path), [])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _load_request(path: str) -> dict[str, Any]:
    """Read and remove the start request of a spawned worker."""
    with open(path, "rb") as file:
        request: dict[str, Any] = unpack(file.read())
    os.unlink(path)
    return request
