"""A server on loopback that answers requests with a function, for services that are reached over HTTP."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Request:
    """A request: its method, its path, the parameters in its address, its headers, and its body."""

    method: str
    path: str
    parameters: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What the server answers."""

    body: bytes = b""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


@contextlib.contextmanager
def serving(answer: Callable[[Request], Answer]) -> Iterator[str]:
    """Yield the address of a server, as long as the context lasts."""

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            address = urlsplit(self.path)
            parameters = {key: values[0] for key, values in parse_qs(address.query).items()}
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Transfer-Encoding") == "chunked":
                while size := int(self.rfile.readline(), 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            given = {key.lower(): value for key, value in self.headers.items()}
            found = answer(Request(self.command, address.path, parameters, given, body))
            start, stop = 0, len(found.body)
            if found.status == 200 and "range" in given:
                first, _, last = given["range"].removeprefix("bytes=").partition("-")
                start, stop = int(first), int(last) + 1 if last else stop
            self.send_response(206 if (start, stop) != (0, len(found.body)) else found.status)
            for key, value in found.headers:
                self.send_header(key, value)
            part = found.body[start:stop]
            if len(part) != len(found.body):
                self.send_header("Content-Range", f"bytes {start}-{start + len(part) - 1}/{len(found.body)}")
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(part)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(part)

        do_GET = do_POST = do_HEAD = _handle  # noqa: N815 - http.server looks them up by these names

        def log_message(self, format: str, *args: object) -> None:
            """Keep the output of tests clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
