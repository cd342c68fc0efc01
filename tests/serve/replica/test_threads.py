"""Synchronous functions of FastAPI and Starlette run in as many threads as a replica may have requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.background import BackgroundTask
from starlette.responses import PlainTextResponse, StreamingResponse

from skate import serve
from tests.serve.conftest import LIGHT
from tests.serve.waiting import until

MANY = 45  # more than the 40 that anyio allows by itself
EVENT_TIMEOUT_S = 60


def ask_at_once(url: str, count: int) -> list[str]:
    with (
        ThreadPoolExecutor(count) as pool,
        httpx.Client(timeout=EVENT_TIMEOUT_S, limits=httpx.Limits()) as client,
    ):
        return [answer.text for answer in pool.map(lambda _: client.get(url), range(count))]


def meeting_of_fastapi() -> Any:
    """Make a deployment whose answers wait for each other, in threads."""
    app = FastAPI()

    @serve.deployment(ray_actor_options=LIGHT)
    @serve.ingress(app)
    class Meeting:
        def __init__(self) -> None:
            self.barrier = threading.Barrier(MANY)

        @app.get("/ready")
        def ready(self) -> str:
            return "ready"

        @app.get("/")
        def meet(self) -> str:
            self.barrier.wait(EVENT_TIMEOUT_S)
            return "met"

    return Meeting


def test_functions_of_fastapi_run_for_all_requests_at_a_time(run: Callable[..., Any], url: str) -> None:
    run(meeting_of_fastapi().options(max_ongoing_requests=MANY).bind())
    assert ask_at_once(url, MANY) == ['"met"'] * MANY


@pytest.mark.parametrize("way", ["stream", "background"])
def test_what_a_response_runs_in_threads_runs_for_all_requests_at_a_time(
    run: Callable[..., Any], url: str, way: str
) -> None:
    @serve.deployment(max_ongoing_requests=MANY, ray_actor_options=LIGHT)
    class Meeting:
        def __init__(self) -> None:
            self.barrier = threading.Barrier(MANY)
            self.met = 0

        def parts(self) -> Iterator[str]:
            self.barrier.wait(EVENT_TIMEOUT_S)
            yield "met"

        def meet(self) -> None:
            self.barrier.wait(EVENT_TIMEOUT_S)
            self.met += 1

        async def count(self) -> int:
            return self.met

        async def __call__(self, request: Any) -> Any:
            if way == "stream":
                return StreamingResponse(self.parts())
            return PlainTextResponse("met", background=BackgroundTask(self.meet))

    handle = run(Meeting.bind())
    assert ask_at_once(url, MANY) == ["met"] * MANY
    if way == "background":
        until(lambda: handle.count.remote().result() == MANY)


def test_a_new_limit_holds_for_the_replica_that_is_there(run: Callable[..., Any], url: str) -> None:
    deployment = meeting_of_fastapi()
    run(deployment.options(max_ongoing_requests=5).bind())
    assert ask_at_once(f"{url}/ready", 1) == ['"ready"']
    run(deployment.options(max_ongoing_requests=MANY).bind())
    assert ask_at_once(url, MANY) == ['"met"'] * MANY


def test_methods_called_through_handles_have_the_same_threads(run: Callable[..., Any]) -> None:
    @serve.deployment(max_ongoing_requests=7, ray_actor_options=LIGHT)
    async def threads() -> float:
        from anyio import to_thread

        return to_thread.current_default_thread_limiter().total_tokens

    handle = run(threads.bind())
    handle.remote().result()  # imports anyio
    assert handle.remote().result() == 7
    assert run(threads.options(max_ongoing_requests=9).bind()).remote().result() == 9
