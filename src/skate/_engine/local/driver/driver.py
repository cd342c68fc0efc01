"""The driver: it starts or finds a node, attaches to it, and leaves it."""

from __future__ import annotations

import atexit
import os
import signal
import socket
from types import FrameType
from typing import TYPE_CHECKING, Any

from skate._base import errors as exceptions
from skate._base import tracing
from skate._engine import holder
from skate._engine.common import open_files, signals
from skate._engine.common.traced_calls import choose_class
from skate._engine.local.client.client import Client
from skate._engine.local.client.engine import LocalEngine
from skate._engine.local.client.job import environment_resolver, job_info
from skate._engine.local.driver.debug_terminal import DebugTerminal
from skate._engine.local.driver.launcher import NODE_EXIT_TIMEOUT_S, NodeProcess, fill_standard_streams
from skate._engine.local.driver.printing import OutputPrinter
from skate._engine.local.session import folders as sessions
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.frames import Connection, pack
from skate._engine.local.wire.interrupts import Interrupts
from skate._engine.local.wire.unix_sockets import connect as connect_socket

if TYPE_CHECKING:
    from skate._engine.abc import WaitWatcher


class LocalDriver(LocalEngine):
    """The engine of a driver; it also ends the node that it has started."""

    is_worker = False

    def __init__(
        self, client: Client, node: NodeProcess | None, info: dict[str, Any], printer: OutputPrinter
    ) -> None:
        super().__init__(client)
        self._node = node
        self._printer = printer
        self.info = info
        self.environment = info["runtime_env"]
        self.default_lifetime = info["metadata"].get("default_actor_lifetime", "")
        self.environment_resolver = environment_resolver(self, info["runtime_env"], {})
        self._terminal = DebugTerminal(client.session)
        client.channel.handlers[m.Output] = self._printer.show
        client.channel.handlers[m.Stopped] = self._terminal.stopped
        self._pid = os.getpid()
        client.channel.hub.on_fault = self._fault
        client.channel.hub.start_thread()
        atexit.register(self._at_exit)
        self._interrupts = (
            Interrupts(self._interrupted),
            Interrupts(signals.exit_on_signal, number=signal.SIGTERM, default=signal.SIG_DFL),
        )
        for each in self._interrupts:
            each.install()

    def watch_waits(self, watcher: WaitWatcher) -> None:
        """Call `watcher` whenever `get` or `wait` take long."""
        self.client.on_long_wait = watcher

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        """Handle Ctrl-C: detach from debugged workers, then raise KeyboardInterrupt."""
        self._terminal.release()
        signal.default_int_handler(number, frame)

    def _fault(self) -> None:
        """Handle a failure of the reading thread, which is a bug in Skate: the session ends."""
        import logging
        import traceback

        text = traceback.format_exc()
        logging.getLogger("skate").error(
            "Skate has failed in its reading thread. Please report this.\n%s", text
        )
        self.client.channel.closed = "Skate failed in its reading thread; see the log"
        self._node_closed()

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from the driver, and so does not belong to the session."""
        return os.getpid() != self._pid

    def _at_exit(self) -> None:
        if self.is_forked:
            return
        if holder.running() is self:
            holder.leave()  # like `skate.shutdown`: callbacks must not record into an ended session
        self.shutdown()

    def shutdown(self) -> None:
        """Leave the node; if this driver started it, end it and wait until all its processes and files are gone."""
        if self.is_forked:
            return
        client = self.client
        try:
            if not client.channel.closed:
                if self._node is None and self.info["log_to_driver"]:
                    client.channel.request(m.FlushOutput)
                client.channel.send(m.Goodbye("shutdown"))
            client.channel.closed = client.channel.closed or "shutdown() was called"
            if self._node is not None and not client.channel.node_died:
                # The last output of the workers arrives before the node closes the connection.
                client.channel.hub.attend(lambda: client.channel.node_died, NODE_EXIT_TIMEOUT_S)
        finally:  # even if the user interrupts the wait
            super().shutdown()
            if self._node is not None:
                self._node.wait(NODE_EXIT_TIMEOUT_S)
            atexit.unregister(self._at_exit)
            try:
                self._terminal.close()
                self._printer.close()
            finally:  # the user may interrupt the wait for a terminal that is not read
                for each in self._interrupts:
                    each.uninstall()


def attach(
    node: NodeProcess, namespace: str | None, runtime_env: dict[str, Any], extra: dict[str, Any]
) -> LocalDriver:
    """Attach to a node that this process has started."""
    return _attach(node.sock, node, namespace, runtime_env, extra, _printer(extra["metadata"]))


def _printer(metadata: dict[str, Any]) -> OutputPrinter:
    # Structured records name their worker themselves, and other programs read them.
    return OutputPrinter(prefixed="logging_config" not in metadata)


def connect(
    address: str,
    *,
    namespace: str | None,
    runtime_env: dict[str, Any],
    log_to_driver: bool,
    metadata: dict[str, Any],
    observer: bool = False,
    hidden: bool = False,
) -> LocalDriver:
    """Attach to a running node: as a job, as an unlisted job, or as an observer without a job."""
    fill_standard_streams()
    printer = _printer(metadata)  # before the connection opens, because it raises for an invalid variable
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connect_socket(sock, sessions.at(address).socket)
    except OSError as error:
        sock.close()
        raise ConnectionError(
            f"No Skate node answers at {address}: {error}. Start one with `skate start`, or call init() "
            "without an address to run a private one."
        ) from error
    hook = "" if observer else sessions.description(address).get(tracing.HOOK)
    if hook:
        metadata = {tracing.HOOK: hook, **metadata}
    extra = {
        "log_to_driver": log_to_driver,
        "metadata": metadata,
        "observer": observer,
        "hidden": observer or hidden,
        "prestart": not (observer or hidden),
        # The node was started elsewhere, but its workers need the variables of the driver.
        "environ": dict(os.environ),
    }
    return _attach(sock, None, namespace, runtime_env, extra, printer)


def _attach(
    sock: socket.socket,
    node: NodeProcess | None,
    namespace: str | None,
    runtime_env: dict[str, Any],
    extra: dict[str, Any],
    printer: OutputPrinter,
) -> LocalDriver:
    try:
        kind = choose_class(LocalDriver, extra["metadata"])
    except BaseException:
        sock.close()
        raise
    open_files.raise_limit()
    # Without a namespace, the named actors are private: the random one cannot be guessed.
    info = job_info(namespace or os.urandom(16).hex(), runtime_env, extra)
    connection = Connection(sock)
    connection.post(m.Hello("driver", os.getpid(), job=pack(info)))
    welcome = _welcome(connection, node)
    shm = node.session.shm if node is not None else sessions.at(welcome.session).shm
    client = Client(connection, welcome, shm)
    client.record_creation_sites()
    return kind(client, node, info, printer)


def _welcome(connection: Connection, node: NodeProcess | None) -> m.Welcome:
    connection.sock.setblocking(True)
    try:
        connection.flush()
        while True:
            for message in connection.receive():
                if isinstance(message, m.Welcome):
                    return message
    except ConnectionError as error:
        log = node.log() if node is not None else ""
        raise exceptions.RaySystemError(f"The node did not start: {error}\n{log}") from error
    finally:
        connection.sock.setblocking(False)
