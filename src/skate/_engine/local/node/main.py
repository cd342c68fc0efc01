"""The node process: a loop that passes messages to the state machine and executes its decisions."""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from skate._base import tracing
from skate._engine.common import open_files
from skate._engine.common.platform import system
from skate._engine.common.process_limits import start_thread
from skate._engine.local.node.memory_monitor import MemoryMonitor
from skate._engine.local.node.output import OutputPipes
from skate._engine.local.node.processes import Processes
from skate._engine.local.node.spilling import SpillThread
from skate._engine.local.session import folders as sessions
from skate._engine.local.session.task_progress import last_begun
from skate._engine.local.state.machine import Machine
from skate._engine.local.state.records import HOST
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.frames import Closed, Connection, unpack
from skate._engine.local.wire.unix_sockets import bind

# The node creates several records for each task, and cycles are rare: with Python's default threshold, garbage
# collection took a twelfth of the state machine's time.
COLLECTION_THRESHOLD = 50_000
# Bytes received from a process at a time, about 300 tasks: a driver that submits thousands must not keep the node from
# the workers that have finished theirs.
MAX_RECEIVED = 1 << 15
FLUSH_TIMEOUT_S = 5.0  # for the last messages to processes that do not read

_IN = system.READ
_OUT = system.WRITE


class Node:
    """Owns the sockets, processes and files of a session."""

    def __init__(self, config: dict[str, Any], template: tuple[socket.socket, int] | None) -> None:
        self.session = sessions.Session(config["folder"], config["shm"], tuple(config["claims"]))
        sessions.lock(
            self.session,
            {
                "pid": os.getpid(),
                "private": config["private"],
                "python": sessions.python_version(),
                "started": time.time(),
                tracing.HOOK: config.get(tracing.HOOK, ""),
            },
        )
        self.config = config
        self.poll = system.poller()
        self.machine = Machine(
            resources=config["resources"],
            devices=config["devices"],
            labels=config["labels"],
            node_id=bytes.fromhex(config["node_id"]),
            budget=config["budget"],
            session=config["folder"],
            private=config["private"],
            oom_retries=int(config["memory_monitor"]["task_oom_retries"]),
            learns_imports=config["auto_preload"] and template is not None and system.CHECKS_FORKS,
        )
        self.connections: dict[int, Connection] = {}  # by process number
        self._by_descriptor: dict[int, Connection] = {}
        self._callbacks: dict[int, Any] = {}
        self._stopping = ""
        self._dirty: set[Connection] = set()
        self.owner: Connection | None = None  # the driver that owns this node
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        bind(self.listener, self.session.socket)
        self.listener.listen(512)
        self.listener.setblocking(False)
        self.processes = Processes(self, config, template)
        self.output = OutputPipes(self)
        self.spill = SpillThread(self.session, self._inject)
        monitor = config["memory_monitor"]
        self.memory = MemoryMonitor(
            self, monitor["memory_usage_threshold"], monitor["memory_monitor_refresh_ms"] / 1000
        )
        self.watch(self.listener.fileno(), self._accept)
        self.watch(self.spill.descriptor, self.spill.collect)
        read, write = system.pipe()
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self._signals = read
        self.watch(read, self._signalled)

    # ------------------------------------------------------------ the loop

    def run(self) -> None:
        """Serve until the node has to stop."""
        machine = self.machine
        self.memory.start()
        try:
            while not self._stopping:
                wait = machine.next_tick()
                events = self.poll.poll(-1 if wait is None else wait, 128)
                now = time.time()
                for descriptor, event in events:
                    connection = self._by_descriptor.get(descriptor)
                    if connection is None:
                        callback = self._callbacks.get(descriptor)
                        if callback is not None:
                            callback()
                        continue
                    if event & _OUT:
                        self._write(connection)
                    if event & ~_OUT:
                        self._read(connection, now)
                if wait is not None:
                    machine.tick(now)
                machine.settle()
                self._act()
        except Exception:
            import traceback

            # A bug in Skate: the session ends, and all drivers get the reason.
            machine.warn("Skate's node has failed. Please report this:\n" + traceback.format_exc())
            self._act()
            raise
        finally:
            self._end()

    def _read(self, connection: Connection, now: float) -> None:
        try:
            messages = connection.receive(MAX_RECEIVED)
        except Closed:
            self._closed(connection, now)
            return
        number = connection.label
        if number is None:
            self._introduced(connection, messages, now)
            return
        self.machine.handle_all(number, messages, now)

    def _act(self) -> None:
        """Execute the decisions of the machine."""
        machine = self.machine
        connections = self.connections
        while True:
            outgoing = machine.take()
            if not outgoing:
                break
            for receiver, message in outgoing:
                if receiver:
                    connection = connections.get(receiver)
                    if connection is not None:
                        connection.post(message)
                        self._dirty.add(connection)
                else:
                    self._effect(message)
            machine.settle()
        if self._dirty:
            for connection in self._dirty:
                self._write(connection)
            self._dirty.clear()

    def _write(self, connection: Connection) -> None:
        try:
            done = connection.flush()
        except Closed:
            return  # the reader detects the end
        if done == connection.writing and connection.fileno() >= 0:
            connection.writing = not done
            self.poll.modify(connection.fileno(), _IN if done else _IN | _OUT)

    def handle_now(self, source: int, message: Any) -> None:
        """Pass a message of the node process itself to the machine."""
        self.machine.handle(source, message, time.time())

    _inject = handle_now

    def watch(self, descriptor: int, callback: Any) -> None:
        """Call `callback` whenever the descriptor is readable."""
        self._callbacks[descriptor] = callback
        self.poll.register(descriptor, _IN)

    def unwatch(self, descriptor: int) -> None:
        """Stop watching a descriptor."""
        if self._callbacks.pop(descriptor, None) is not None:
            self.poll.unregister(descriptor)

    # ------------------------------------------------------------ connections

    def attach(self, sock: socket.socket, number: int | None) -> Connection:
        """Add a connection to the loop."""
        connection = Connection(sock, number)
        self._by_descriptor[sock.fileno()] = connection
        self.poll.register(sock.fileno(), _IN)
        if number is not None:
            self.connections[number] = connection
        return connection

    def _accept(self) -> bool:
        """Accept a connection; return whether there was one."""
        try:
            sock, _ = self.listener.accept()
        except OSError as error:
            if open_files.is_exhausted(error):
                self.machine.warn(open_files.describe_limit(error, "The node"))
                # The listener stays readable: watch it again when a descriptor is free.
                self.unwatch(self.listener.fileno())
            return False
        self.attach(sock, None)
        return True

    def _introduce_all(self) -> None:
        """Accept the connections that wait, and read what their processes have sent."""
        while self._accept():
            pass
        for connection in [each for each in self._by_descriptor.values() if each.label is None]:
            self._read(connection, time.time())

    def _introduced(self, connection: Connection, messages: list[Any], now: float) -> None:
        """Handle the first messages of a new connection, which identify the process."""
        for message in messages:
            if isinstance(message, m.Hello) and connection.label is None:
                if message.kind == "driver":
                    self.welcome_driver(connection, unpack(message.job), message.pid)
                    continue
                if message.number not in self.machine.peers:
                    self._close(connection)
                    return
                connection.label = message.number
                self.connections[message.number] = connection
            if connection.label is not None:
                self.machine.handle(connection.label, message, now)

    def welcome_driver(self, connection: Connection, info: dict[str, Any], pid: int) -> None:
        """Admit a driver and start a first worker for it."""
        machine = self.machine
        peer = machine.connect_driver(info, pid, time.time())
        connection.label = peer.number
        self.connections[peer.number] = connection
        connection.post(
            m.Welcome(
                peer.number,
                peer.job,
                self.session.folder,
                machine.node_id,
                info.get("namespace") or "",
                self.config["resources"],
                machine.labels,
            )
        )
        self._dirty.add(connection)
        if not info.get("runtime_env") and info.get("prestart", True):
            machine.scheduler.prestart(peer.job)

    def _closed(self, connection: Connection, now: float) -> None:
        number = connection.label
        self._close(connection)
        if connection is self.owner:
            self._stopping = "the driver is gone"  # even before it has introduced itself
        if number is None:
            return
        self.connections.pop(number, None)
        peer = self.machine.peers.get(number)
        if peer is None:
            return
        if peer.is_driver or not self.processes.knows(number):
            self.machine.handle(HOST, m.WorkerGone(number), now)
        else:
            # Its end is handled once its exit code is known. A process that is ending keeps its code; one that
            # lives on has closed its descriptors, and nothing else would end it.
            self.processes.kill(number)

    def _close(self, connection: Connection) -> None:
        descriptor = connection.fileno()
        if self._by_descriptor.pop(descriptor, None) is not None:
            self.poll.unregister(descriptor)
        connection.close()
        if self.listener.fileno() not in self._callbacks:
            self.watch(self.listener.fileno(), self._accept)

    def worker_refused(self, number: int, why: str) -> None:
        """Handle a worker that the system refused to start."""
        self.output.close(number)
        self.handle_now(HOST, m.WorkerGone(number, refused=why))

    def worker_ended(self, number: int, code: int | None, said: Sequence[str] = ()) -> None:
        """Handle the last messages and then the end of a reaped worker; `said` adds to its last lines."""
        if number not in self.connections:  # it may have said why it could not start
            self._introduce_all()
        connection = self.connections.get(number)
        if connection is not None:
            now = time.time()
            for message in connection.receive_rest():
                self.machine.handle(number, message, now)
            self.connections.pop(number, None)
            self._close(connection)
        lines = [*self.output.close(number), *said]
        self.handle_now(HOST, m.WorkerGone(number, code, lines, last_begun(self.session, number)))

    # ------------------------------------------------------------ effects

    def _effect(self, message: Any) -> None:
        kind = type(message)
        if kind is m.StartWorker:
            self.processes.start(message)
        elif kind is m.KillProcess:
            self.processes.kill(message.number)
        elif kind is m.MakeTemplate:
            self.processes.make_template(message)
        elif kind is m.DropTemplate:
            self.processes.drop_template(message.number)
        elif kind is m.DeleteSegment:
            try:
                os.unlink(self.session.path_of(message.segment))
            except OSError:
                return  # never written, or the disk fails: the end of the session removes it
        elif kind is m.FlushOutput:
            self.output.flush()
            self.machine.answer(message.source, message.request, None)
        elif kind is m.Stop:
            self._stopping = message.reason or "stop"
        else:
            self.spill.submit(message)

    def _signalled(self) -> None:
        numbers = os.read(self._signals, 4096)
        if signal.SIGTERM in numbers:
            self._stopping = "SIGTERM"
        if signal.SIGCHLD in numbers:
            self.processes.reap()

    def _end(self) -> None:
        """Kill all processes and remove the session."""
        self.memory.stop()
        self.spill.stop()
        self.processes.kill_all()
        self.output.drain()
        self._flush_all(time.monotonic() + FLUSH_TIMEOUT_S)
        if not self.config["private"]:
            from skate._engine.local.session import node_records

            node_records.forget(self.session.folder)
        self.session.remove()
        self.processes.close()

    def _flush_all(self, deadline: float) -> None:
        """Write the last messages; wait for slow readers until the deadline."""
        for connection in self._dirty | set(self.connections.values()):
            writable = select.poll()
            writable.register(connection.fileno(), select.POLLOUT)
            try:
                while not connection.flush():
                    left = deadline - time.monotonic()
                    if left <= 0 or not writable.poll(left * 1000):
                        break
            except Closed:
                continue


def serve(config: dict[str, Any], template: tuple[socket.socket, int] | None) -> None:
    """Run as the node of a session until it ends."""
    node = Node(config, template)
    descriptor = config.get("driver_fd", -1)
    if descriptor >= 0:
        node.owner = node.attach(socket.socket(fileno=descriptor), None)
    if config.get("ready_fd", -1) >= 0:
        os.write(config["ready_fd"], b"ready")
        os.close(config["ready_fd"])
    # In a thread, because a dead session may have left gigabytes.
    sweeping = threading.Thread(target=sessions.sweep, name="skate-sweep", daemon=True)
    try:
        start_thread(sweeping)
    except OSError as error:  # the next node does it
        sys.stderr.write(f"skate: dead sessions were not removed. {error.strerror}\n")
    gc.freeze()
    gc.set_threshold(COLLECTION_THRESHOLD)
    node.run()
