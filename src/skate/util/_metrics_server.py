"""A small HTTP server from which Prometheus can fetch the metrics."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Final

from skate.util._metrics_text import CONTENT_TYPE

__all__ = ["MetricsServer"]

_LOOPBACK: Final = "127.0.0.1"
# A page in the user's browser can reach this server under a name of its own; those are turned away.
_HOSTS: Final = frozenset((_LOOPBACK, "localhost"))


class MetricsServer:
    """Serves ``/metrics`` on the loopback interface until it is closed.

    Attributes:
        port: The port it listens on.
        url: Where to point Prometheus.
    """

    def __init__(self, port: int, text: Callable[[], str]) -> None:
        handler = type("Handler", (_Handler,), {"text": staticmethod(text)})
        self._server = _Server((_LOOPBACK, port), handler)
        self.port: int = self._server.server_address[1]
        self.url = f"http://{_LOOPBACK}:{self.port}/metrics"
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="skate-metrics-server", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving and give the port back."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    def server_bind(self) -> None:
        # HTTPServer would look up this machine's name, which can take seconds.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = _LOOPBACK, int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    text: Callable[[], str]
    timeout = 10

    def do_GET(self) -> None:
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if host not in _HOSTS:
            self.send_error(HTTPStatus.FORBIDDEN, f"Ask for this page on {_LOOPBACK}")
        elif self.path.partition("?")[0] not in ("/metrics", "/"):
            self.send_error(HTTPStatus.NOT_FOUND, "The metrics are at /metrics")
        else:
            body = self.text().encode("utf-8", "replace")
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a scrape every few seconds is no news."""
