"""The HTTP server of the proxy: uvicorn on a bound socket."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skate.air._optional import load
from skate.serve._proxy.limits import Limits
from skate.serve.exceptions import ListenError

if TYPE_CHECKING:
    from skate.serve._proxy.fast_path import FastPathHandler

__all__ = ["HttpServer", "bind", "make_protocol"]


def bind(host: str, port: int) -> socket.socket:
    """Return a bound socket.

    Raises:
        ListenError: If the port is in use. The error names the process, if it is known.
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
            f"Serve cannot listen on {host}:{port}: the port is in use{_describe_port_owner(port)}. "
            f"Stop that process, or choose another port: serve.start(http_options={{'port': {port + 1}}}); "
            "port 0 selects a free one.",
        ) from None
    made.setblocking(False)
    return made


def _describe_port_owner(port: int) -> str:
    """Return a description of the process that listens on a port, or "" if it is unknown."""
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
    """Run an ASGI application. On the Serve event loop."""

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
            # A certificate authority for clients implies that clients must have certificates.
            ssl_cert_reqs=ssl.CERT_REQUIRED if options.get("ssl_ca_certs") else ssl.CERT_NONE,
        )
        self._server = uvicorn.Server(self._config)
        self._main: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to accept connections."""
        config, server = self._config, self._server
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[self._socket])
        self._main = asyncio.ensure_future(server.main_loop())

    async def stop(self) -> None:
        """Stop accepting connections, and wait for the open ones."""
        self._server.should_exit = True
        if self._main is not None:
            await self._main
        await self._server.shutdown(sockets=[self._socket])


def _websocket(**options: Any) -> Any:
    """Return uvicorn's websocket protocol. It is imported for the first websocket."""
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    return WebSocketsSansIOProtocol(**options)


def _check_files(options: dict[str, Any]) -> None:
    """Raise if a TLS file does not exist; the error of Python's `ssl` does not name it."""
    for name in ("ssl_keyfile", "ssl_certfile", "ssl_ca_certs"):
        path = options.get(name)
        if path and not Path(path).is_file():
            raise FileNotFoundError(errno.ENOENT, f"{name} of Serve's HTTP options does not exist", path)


def make_protocol(limits: Limits, fast_path: FastPathHandler | None = None) -> type[asyncio.Protocol]:
    """Return the protocol class for connections: with httptools if it is installed, otherwise with h11.

    Args:
        limits: The limits of requests.
        fast_path: Handles requests that arrive complete; without it, uvicorn handles all of them.
    """
    try:
        import httptools  # noqa: F401
    except ImportError:
        from skate.serve._proxy.http_protocol_h11 import H11

        load("h11", "Serve over HTTP", "'skate[serve]'")
        return type("GuardedH11", (H11,), {"limits": limits, "lingering": set()})
    from skate.serve._proxy.http_protocol_httptools import HttpTools

    return type(
        "GuardedHttpTools", (HttpTools,), {"limits": limits, "lingering": set(), "fast_path": fast_path}
    )
