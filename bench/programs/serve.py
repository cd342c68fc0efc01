"""Serving: no-op requests over HTTP and by handle, streams, and how long it takes to come up."""

from __future__ import annotations

import importlib
import time
from collections.abc import AsyncIterator
from typing import Any

import http_load
import meter

job = meter.Job()
ray: Any = job.load()
serve: Any = importlib.import_module(f"{job.system}.serve")

URL = "http://127.0.0.1:8000/"
CHUNKS = http_load.CHUNKS


class Nothing:
    """Answers, and does nothing else."""

    async def __call__(self, request: Any = None) -> str:
        return "ok"

    async def call(self) -> str:
        return "ok"


class Stream:
    """Answers in many small parts."""

    async def __call__(self, request: Any) -> Any:
        from starlette.responses import StreamingResponse

        return StreamingResponse(self.parts(), media_type="text/plain")

    async def parts(self) -> AsyncIterator[str]:
        for _ in range(CHUNKS):
            yield "x" * 20


def up(kind: type, **options: Any) -> Any:
    """Serve a class, and wait until it answers."""
    app = serve.deployment(kind).options(
        max_ongoing_requests=100, ray_actor_options={"num_cpus": 0}, **options
    )
    handle = serve.run(app.bind())
    http_load.wait_for(URL)
    return handle


def serve_http_1() -> float:
    up(Nothing)
    return http_load.rate(URL, 1, job.seconds, job.warmup)


def serve_http_16() -> float:
    up(Nothing)
    return http_load.rate(URL, 16, job.seconds, job.warmup)


def serve_http_64() -> float:
    up(Nothing)
    return http_load.rate(URL, 64, job.seconds, job.warmup)


def serve_p99() -> float:
    up(Nothing)
    peak = http_load.rate(URL, 16, job.seconds, job.warmup)
    return http_load.p99_at(URL, peak / 2, max(3.0, job.seconds))


def serve_handle_sync() -> float:
    handle = up(Nothing)
    return job.rate(lambda: handle.call.remote().result())


def serve_handle_async() -> float:
    handle = up(Nothing)

    def burst() -> None:
        responses = [handle.call.remote() for _ in range(100)]
        for response in responses:
            response.result()

    return job.rate(burst, per_step=100)


def serve_stream() -> float:
    up(Stream)
    return http_load.stream_seconds(URL)


def serve_up() -> float:
    """Return the seconds from `serve.run` to the first answer over HTTP."""
    start = time.perf_counter()
    up(Nothing)
    return time.perf_counter() - start


job.run_on(
    ray,
    serve_http_1,
    serve_http_16,
    serve_http_64,
    serve_p99,
    serve_handle_sync,
    serve_handle_async,
    serve_stream,
    serve_up,
)
