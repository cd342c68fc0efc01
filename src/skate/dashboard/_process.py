"""The process of a dashboard: in the foreground of a terminal, or as a child of a program."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import uvicorn

from skate._api import dashboards
from skate._api.observer import Observer, attach
from skate.dashboard._app import Dashboard
from skate.dashboard._node import Node
from skate.dashboard._security import new_token, page_url

__all__ = ["main", "run"]

MOST_PORTS: Final = 50  # that are tried, one after the other
GRACE_S: Final = 1  # for open connections at the end
_OPEN_CONNECTIONS: Final = ("ASGI callable returned without completing response", "Cancel ")

logger = logging.getLogger(__name__)


def run(
    address: str, host: str, port: int, on_ready: Callable[[str, int], None], *, ends_with_stdin: bool = False
) -> None:
    """Run a dashboard until a signal, or the end of standard input.

    Args:
        address: The node: "auto", the folder of a session, or the address of a Ray cluster.
        host: The address to listen on.
        port: The first port to try; 0 for any.
        on_ready: Called with the URL and the port when it accepts requests.
        ends_with_stdin: Whether it ends with standard input.

    Raises:
        ConnectionError: There is no such node.
        OSError: No port is free, or the address cannot be used.
        ValueError: The token in the environment cannot be used.
    """
    sock = _bind(host, port)
    try:
        asyncio.run(_serve(sock, address, host, on_ready, ends_with_stdin))
    finally:
        sock.close()


def _bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the first free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    last = port if port == 0 else min(65535, port + MOST_PORTS - 1)
    for number in range(port, last + 1):
        sock = socket.socket(family, socket.SOCK_STREAM)
        # Without this, the port of an ended dashboard cannot be used for a minute.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, number))
            sock.listen(128)
            return sock
        except OSError as error:
            sock.close()
            if error.errno != errno.EADDRINUSE:
                raise OSError(error.errno, f"Cannot listen on {host}:{number}: {error.strerror}") from error
    raise OSError(errno.EADDRINUSE, f"All ports from {port} to {last} of {host} are in use.")


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """Return whether a message of the server is more than the end of a connection that a client has left open."""
    is_cancelled = record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError)
    return not is_cancelled and not record.getMessage().startswith(_OPEN_CONNECTIONS)


class _Server(uvicorn.Server):
    """A server whose signals are handled by the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(
    sock: socket.socket,
    address: str,
    host: str,
    on_ready: Callable[[str, int], None],
    ends_with_stdin: bool,
) -> None:
    port = sock.getsockname()[1]
    token = dashboards.fixed_token() or new_token()
    url = page_url(host, port, token)

    def connect() -> Observer:
        observer = attach(address)
        if observer.is_local:
            try:
                dashboards.record(observer.session, url)
            except OSError as error:
                logger.warning("The URL cannot be recorded in %s: %s", observer.session, error)
        return observer

    dashboard = Dashboard(Node(connect), token, host, port)
    config = uvicorn.Config(
        dashboard.app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    server = _Server(config)
    logging.getLogger("uvicorn.error").addFilter(_is_worth_logging)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        server.should_exit = True
        dashboard.end_streams()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    if ends_with_stdin:
        loop.add_reader(sys.stdin.fileno(), _read_input, loop, stop)
    try:
        await dashboard.start()
        on_ready(url, port)
        await server.serve(sockets=[sock])
    finally:
        if dashboard.node.session is not None:
            dashboards.forget(dashboard.node.session)
        await dashboard.close()


def _read_input(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    if not os.read(sys.stdin.fileno(), 1024):
        loop.remove_reader(sys.stdin.fileno())
        stop()


def main() -> None:
    """Run a dashboard for a program: settings come in on standard input, the URL goes out on standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING)
    # Not through the buffer of `sys.stdin`, because the event loop reads the descriptor later.
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as given:
        settings: dict[str, Any] = json.loads(given.readline())

    def tell(message: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    try:
        run(**settings, on_ready=lambda url, port: tell({"url": url, "port": port}), ends_with_stdin=True)
    except OSError as error:
        tell({"error": f"The dashboard did not start: {error}"})
