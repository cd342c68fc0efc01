"""Live updates: shared computations, slow clients, and topics that fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.routing import Route

from skate.dashboard import _live
from skate.dashboard._live import EventStream, Live
from skate.dashboard._topics import Problem, Topics
from tests.dashboard.support import Stream


class Counted:
    """A topic whose data a test sets, and which counts its computations."""

    def __init__(self) -> None:
        self.data: Any = 0
        self.problem: Exception | None = None
        self.computed = 0
        self.queries: list[str] = []

    async def handle(self, _: Mapping[str, str], query: QueryParams) -> Any:
        self.computed += 1
        self.queries.append(str(query))
        if self.problem is not None:
            raise self.problem
        return self.data

    async def computed_again(self, times: int = 2) -> None:
        wanted = self.computed + times
        async with asyncio.timeout(10):
            while self.computed < wanted:  # noqa: ASYNC110 - the topic is the one under test
                await asyncio.sleep(0.001)


@pytest.fixture
def topic() -> Counted:
    return Counted()


@pytest.fixture
def live(topic: Counted) -> Live:
    topics = Topics()
    topics.add("/state/topic", topic.handle)
    return Live(topics, interval_s=0.005)


def stream(live: Live, query: str = "path=/state/topic") -> Stream:
    return Stream(Starlette(routes=[Route("/live", live.respond)]), f"/live?{query}")


async def test_data_is_sent_at_once_and_when_it_changes(topic: Counted, live: Live) -> None:
    async with stream(live) as client:
        assert await client.next() == ("update", {"path": "/state/topic", "data": 0})
        await topic.computed_again()
        topic.data = 1
        assert await client.next() == ("update", {"path": "/state/topic", "data": 1})


async def test_clients_share_the_computation_of_a_topic(topic: Counted, live: Live) -> None:
    async with stream(live) as first, stream(live) as second:
        await first.next()
        await second.next()
        before = topic.computed
        await topic.computed_again(4)
        assert topic.computed - before == 4
        assert live.subscribed == ["/state/topic"]


async def test_a_topic_without_clients_is_not_computed(topic: Counted, live: Live) -> None:
    async with stream(live) as client:
        await client.next()
    assert live.subscribed == []
    before = topic.computed
    await asyncio.sleep(0.05)
    assert topic.computed == before


async def test_the_query_belongs_to_the_topic(topic: Counted, live: Live) -> None:
    async with stream(live, "path=%2Fstate%2Ftopic%3Flimit%3D5%26filter%3Da%253Db") as client:
        name, data = await client.next()
        assert (name, data["path"]) == ("update", "/state/topic?limit=5&filter=a%3Db")
        assert topic.queries[0] == "limit=5&filter=a%3Db"


async def test_a_client_that_does_not_read_gets_the_newest_data_only(topic: Counted, live: Live) -> None:
    async with stream(live) as client:
        await client.next()
        for number in range(1, 200):
            topic.data = number
            await topic.computed_again(1)
        await topic.computed_again()
        received: list[int] = []
        while not received or received[-1] != 199:
            received.append((await client.next())[1]["data"])
        # One in the socket, one on its way to it, and the newest.
        assert len(received) <= 3


async def test_a_client_that_stops_reading_is_disconnected() -> None:
    closed = asyncio.Event()

    async def events() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"x" * 100_000
        finally:
            closed.set()

    async def respond(_: Any) -> EventStream:
        return EventStream(events(), send_timeout_s=0.01)

    async with Stream(Starlette(routes=[Route("/live", respond)]), "/live") as client:
        await client.ended()
        assert closed.is_set()


async def test_a_topic_that_fails_is_reported_and_comes_back(topic: Counted, live: Live) -> None:
    topic.problem = Problem(503, "The node is gone.")
    async with stream(live) as client:
        gone = {"path": "/state/topic", "status": 503, "detail": "The node is gone."}
        assert await client.next() == ("gone", gone)
        topic.problem = None
        assert await client.next() == ("update", {"path": "/state/topic", "data": 0})


async def test_a_wrong_request_is_not_repeated(topic: Counted, live: Live) -> None:
    topic.problem = Problem(400, "The limit is wrong.")
    async with stream(live) as client:
        assert (await client.next())[1]["status"] == 400
        await asyncio.sleep(0.05)
        assert topic.computed == 1


async def test_a_fault_in_a_topic_is_reported_and_logged(
    topic: Counted, live: Live, caplog: pytest.LogCaptureFixture
) -> None:
    topic.problem = KeyError("name")
    async with stream(live, "path=/state/topic&path=/state/nothing") as client:
        found = {data["path"]: data for _, data in [await client.next(), await client.next()]}
    assert found["/state/topic"]["detail"] == "KeyError: 'name'"
    assert found["/state/nothing"]["status"] == 404
    assert "could not be computed" in caplog.text


async def test_a_quiet_stream_is_kept_alive(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_live, "KEEP_ALIVE_S", 0.01)
    async with stream(live) as client:
        await client.next()
        assert await client.next() == ("comment", None)


async def test_numbers_that_json_does_not_have_become_null(topic: Counted, live: Live) -> None:
    topic.data = [float("nan"), float("inf")]
    async with stream(live) as client:
        assert (await client.next())[1]["data"] == [None, None]


async def test_a_subscription_needs_paths(live: Live) -> None:
    async def failed(query: str) -> int:
        async def explain(_: Any, error: Exception) -> Any:
            from starlette.responses import Response

            return Response(status_code=getattr(error, "status", 500))

        app = Starlette(routes=[Route("/live", live.respond)], exception_handlers={Problem: explain})
        async with Stream(app, f"/live?{query}") as client:
            await client.ended()
            return client.status

    assert await failed("") == 400
    assert await failed("&".join(f"path=/state/{n}" for n in range(100))) == 400


async def test_streams_end_with_the_server(topic: Counted) -> None:
    closing = asyncio.Event()
    topics = Topics()
    topics.add("/state/topic", topic.handle)
    live = Live(topics, 0.005, closing)
    async with stream(live) as reader, stream(live) as idle:
        await reader.next()
        closing.set()
        await reader.ended()
        await idle.ended()
    assert live.subscribed == []
