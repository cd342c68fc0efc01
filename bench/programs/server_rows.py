"""The rows of serving for a peer: start its server in a process, load it, end it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import http_load
import meter


@dataclass(frozen=True, kw_only=True)
class Target:
    """A server, and what to ask it for.

    Args:
        command: Starts the server; `{port}` stands for the port, and SIGTERM ends it and all that it started.
        path: What to ask for.
        body: The JSON to POST; without it the clients GET.
    """

    command: tuple[str, ...]
    path: str
    body: str | None = None


@contextlib.contextmanager
def serving(target: Target) -> Iterator[str]:
    """Start a server, and yield the URL once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    server = subprocess.Popen(
        [part.replace("{port}", port) for part in target.command],
        cwd=os.path.dirname(os.path.abspath(__file__)),
        stdout=sys.stderr,  # standard output is for the figure
    )
    try:
        url = f"http://127.0.0.1:{port}{target.path}"
        http_load.wait_for(url, target.body)
        yield url
    finally:
        server.terminate()
        server.wait()


def measure(*, nothing: Target, stream: Target) -> None:
    """Run the row that the command line names.

    Args:
        nothing: Answers, and does nothing else.
        stream: Answers in `http_load.CHUNKS` small parts.
    """
    job = meter.Job()

    def at(connections: int) -> float:
        with serving(nothing) as url:
            return http_load.rate(url, connections, job.seconds, job.warmup, nothing.body)

    def serve_http_1() -> float:
        return at(1)

    def serve_http_16() -> float:
        return at(16)

    def serve_http_64() -> float:
        return at(64)

    def serve_p99() -> float:
        with serving(nothing) as url:
            peak = http_load.rate(url, 16, job.seconds, job.warmup, nothing.body)
            return http_load.p99_at(url, peak / 2, max(3.0, job.seconds), body=nothing.body)

    def serve_stream() -> float:
        with serving(stream) as url:
            return http_load.stream_seconds(url, stream.body)

    def serve_up() -> float:
        start = time.perf_counter()
        with serving(nothing):
            return time.perf_counter() - start

    job.run(serve_http_1, serve_http_16, serve_http_64, serve_p99, serve_stream, serve_up)
