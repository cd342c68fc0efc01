"""What a plain ASGI server does of the rows of serving: uvicorn with one worker, and Starlette."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

CHUNKS = 1000
CLIENTS = 16


async def home(request: Any) -> Any:
    from starlette.responses import PlainTextResponse

    return PlainTextResponse("ok")


async def stream(request: Any) -> Any:
    from starlette.responses import StreamingResponse

    async def parts() -> AsyncIterator[str]:
        for _ in range(CHUNKS):
            yield "x" * 20

    return StreamingResponse(parts(), media_type="text/plain")


def make_app() -> Any:
    from starlette.applications import Starlette
    from starlette.routing import Route

    return Starlette(routes=[Route("/", home), Route("/stream", stream)])


@contextlib.contextmanager
def serving() -> Iterator[str]:
    import http_load

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "uvicorn", "--factory", "peer_uvicorn:make_app", "--port", str(port)),
            *("--log-level", "warning", "--no-access-log", "--lifespan", "off"),
        ],
        cwd=os.path.dirname(os.path.abspath(__file__)),
    )
    try:
        url = f"http://127.0.0.1:{port}/"
        http_load.wait_for(url)
        yield url
    finally:
        server.terminate()
        server.wait()


def measure() -> None:
    import http_load
    import meter

    job = meter.Job()

    def at(connections: int) -> float:
        with serving() as url:
            return http_load.rate(url, connections, job.seconds, job.warmup)

    def serve_http_1() -> float:
        return at(1)

    def serve_http_16() -> float:
        return at(16)

    def serve_http_64() -> float:
        return at(64)

    def serve_p99() -> float:
        with serving() as url:
            peak = http_load.rate(url, 16, job.seconds, job.warmup)
            return http_load.p99_at(url, peak / 2, max(3.0, job.seconds))

    def serve_stream() -> float:
        with serving() as url:
            return http_load.stream_seconds(url + "stream", CLIENTS, CHUNKS)

    def serve_up() -> float:
        start = time.perf_counter()
        with serving():
            return time.perf_counter() - start

    job.run(serve_http_1, serve_http_16, serve_http_64, serve_p99, serve_stream, serve_up)


if __name__ == "__main__":
    measure()
