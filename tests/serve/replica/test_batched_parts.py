"""Parts of streams that are sent with those of other requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse

from skate.serve._replica.running_request import RunningRequest
from skate.serve._wire.frames import Context, Frame, Item
from skate.serve._wire.link import Link
from skate.serve._wire.window import WINDOW_SIZE
from skate.serve.context import _batch_parts, _request
from tests.serve.conftest import light
from tests.serve.sockets import RawClient

engine = pytest.mark.usefixtures("engine")
Run = Callable[..., Any]


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"socket": self})
        self.writes: list[bytes] = []

    def fileno(self) -> int:
        return -1

    def get_write_buffer_size(self) -> int:
        return 1  # so that nothing is written around the transport

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))


def frames_in(data: bytes) -> list[Frame]:
    frames: list[Frame] = []
    Link(lambda _, frame: frames.append(frame)).data_received(data)
    return frames


def running_requests(count: int) -> tuple[Transport, list[RunningRequest]]:
    """Return requests of one link."""
    transport = Transport()
    link = Link(lambda *_: None)
    link.connection_made(transport)
    return transport, [RunningRequest(link, number, Context(str(number))) for number in range(count)]


async def test_parts_of_one_iteration_are_one_write_that_keeps_order_and_boundaries() -> None:
    transport, requests = running_requests(4)
    for request in requests:
        request.context.batches_parts = True
    sent = [Item(request.id, b"part %d" % number) for number in range(3) for request in requests]
    for item in sent:
        requests[item.id].send_part(item)
    assert not transport.writes
    await asyncio.sleep(0)
    (write,) = transport.writes
    assert frames_in(write) == sent


async def test_other_parts_are_written_before_their_code_continues() -> None:
    transport, (batched, other) = running_requests(2)
    batched.context.batches_parts = True
    batched.send_part(Item(batched.id, b"1"))
    other.send_part(Item(other.id, b"2"))
    (write,) = transport.writes
    assert frames_in(write) == [Item(batched.id, b"1"), Item(other.id, b"2")]


async def test_code_outside_of_a_request_may_ask_for_it() -> None:
    assert _request.get() is None
    _batch_parts()


@light
class Numbers:
    """Yields numbers, and counts how many."""

    def __init__(self) -> None:
        self.yielded = 0
        self.closed = 0

    async def numbers(self, count: int) -> AsyncIterator[str]:
        _batch_parts()
        try:
            for number in range(count):
                self.yielded += 1
                yield f"{number};"
                await asyncio.sleep(0)
        finally:
            self.closed += 1

    async def __call__(self, request: Request) -> StreamingResponse:
        return StreamingResponse(self.numbers(int(request.query_params["count"])))

    async def counts(self) -> tuple[int, int]:
        return self.yielded, self.closed


@engine
def test_many_streams_arrive_in_order(run: Run, url: str) -> None:
    handle = run(Numbers.bind()).options(stream=True)
    streams = [handle.numbers.remote(100) for _ in range(16)]
    assert [list(stream) for stream in streams] == [[f"{number};" for number in range(100)]] * 16
    with RawClient(url) as client:
        client.send(b"GET /?count=100 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        lines = client.read_all().partition(b"\r\n\r\n")[2].split(b"\r\n")
    parts = b"".join(lines[1::2])  # the others are the sizes of the chunks
    assert parts == b"".join(b"%d;" % number for number in range(100))


@engine
def test_a_reader_that_stops_holds_its_stream_back_and_no_other(run: Run) -> None:
    handle = run(Numbers.bind())
    streaming = handle.options(stream=True)
    stopped = streaming.numbers.remote(10_000)
    assert next(stopped) == "0;"
    assert len(list(streaming.numbers.remote(100))) == 100
    yielded, closed = handle.counts.remote().result()
    assert yielded - 100 <= 2 * WINDOW_SIZE
    assert closed == 1
    stopped.cancel()
    while handle.counts.remote().result()[1] != 2:  # until its generator is closed
        pass
