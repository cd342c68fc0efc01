"""The HTTP server at the edge: uvicorn, on a socket that we bind."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skate.air._optional import load
from skate.serve._proxy.http_protocol import make_protocol
from skate.serve._proxy.limits import Limits
from skate.serve.exceptions import ListenError

if TYPE_CHECKING:
    from skate.serve._proxy.fast_path import FastPathHandler

__all__ = ["HttpServer", "bind"]


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens for clients.

    Raises:
        ListenError: If the port is in use; says by whom, where that can be known.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except OSError as error:
        made.close()
        if error.errno != errno.EADDRINUSE:
            raise ListenError(
                error.errno, f"Serve cannot listen on {host}:{port}: {error.strerror}"
            ) from None
        raise ListenError(
            errno.EADDRINUSE,
            f"Serve cannot listen on {host}:{port}: the port is in use{_describe_port_owner(port)}. Stop that process, or choose "
            f"another port: serve.start(http_options={{'port': {port + 1}}}); port 0 takes any that is free.",
        ) from None
    made.setblocking(False)
    return made


def _describe_port_owner(port: int) -> str:
    """Return who listens on a port, in words; nothing where this user may not know."""
    import psutil

    try:
        for connection in psutil.net_connections("inet"):
            if connection.laddr and connection.laddr.port == port and connection.status == psutil.CONN_LISTEN:
                if connection.pid is None:
                    return " by a process of another user"
                process = psutil.Process(connection.pid)
                return f" by process {connection.pid} ({' '.join(process.cmdline())[:80] or process.name()})"
    except psutil.Error:
        return ""
    return ""


class HttpServer:
    """Runs an ASGI application for clients. On the loop of Serve."""

    def __init__(
        self,
        app: Any,
        listening: socket.socket,
        options: dict[str, Any],
        limits: Limits,
        fast_path: FastPathHandler | None = None,
    ) -> None:
        uvicorn = load("uvicorn", "Serve over HTTP", "'skate[serve]'")
        self._socket = listening
        _check_files(options)
        self._config = uvicorn.Config(
            app,
            loop="none",
            http=make_protocol(limits, fast_path),
            h11_max_incomplete_event_size=limits.header_bytes,
            lifespan="off",
            ws=_websocket,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=options.get("keep_alive_timeout_s", 90),
            backlog=2048,
            ssl_keyfile=options.get("ssl_keyfile"),
            ssl_certfile=options.get("ssl_certfile"),
            ssl_keyfile_password=options.get("ssl_keyfile_password"),
            ssl_ca_certs=options.get("ssl_ca_certs"),
            # Who names authorities for clients' certificates wants to see certificates.
            ssl_cert_reqs=ssl.CERT_REQUIRED if options.get("ssl_ca_certs") else ssl.CERT_NONE,
        )
        self._server = uvicorn.Server(self._config)
        self._main: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to take connections."""
        config, server = self._config, self._server
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[self._socket])
        self._main = asyncio.ensure_future(server.main_loop())

    async def stop(self) -> None:
        """Take no further connections, and end when those that are open are done."""
        self._server.should_exit = True
        if self._main is not None:
            await self._main
        await self._server.shutdown(sockets=[self._socket])


def _websocket(**options: Any) -> Any:
    """Return uvicorn's side of a websocket. It is loaded for the first one: most proxies never see any."""
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    return WebSocketsSansIOProtocol(**options)


def _check_files(options: dict[str, Any]) -> None:
    """Raise if a file for TLS is not there: the error of Python's `ssl` does not say which one."""
    for name in ("ssl_keyfile", "ssl_certfile", "ssl_ca_certs"):
        path = options.get(name)
        if path and not Path(path).is_file():
            raise FileNotFoundError(
                errno.ENOENT, f"{name} of Serve's HTTP options: there is no such file", path
            )
