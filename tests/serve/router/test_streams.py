"""Streams of values on the caller's side."""

from __future__ import annotations

import threading
from typing import Any

from skate._api.payloads import pack
from skate.serve._router.requests import StreamingRequest
from skate.serve._router.responses import DeploymentResponseGenerator
from skate.serve._router.result import Result
from skate.serve._runtime.loop import ServeLoop
from skate.serve._wire.frames import Context, End, Item


def reader_of(stream: StreamingRequest, runtime: Any) -> DeploymentResponseGenerator[Any]:
    reader: DeploymentResponseGenerator[Any] = object.__new__(DeploymentResponseGenerator)
    reader._runtime, reader._stream, reader._is_finished = runtime, stream, False
    reader._started = Result()
    reader._started.set_packed(b"")
    return reader


class Runtime:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.serve_loop = ServeLoop("test")


def test_a_reader_in_another_thread_misses_no_item() -> None:
    runtime = Runtime()
    count = 2_000
    try:
        for _ in range(5):
            stream = StreamingRequest(Context("id"), "method", b"", None)
            read: list[int] = []
            reader = threading.Thread(target=lambda s=stream, r=read: r.extend(reader_of(s, runtime)))
            reader.start()

            async def write(stream: StreamingRequest = stream) -> None:
                for number in range(count):
                    assert not stream.receive(Item(stream.id, pack(number)))
                assert stream.receive(End(stream.id, 0))

            runtime.serve_loop.wait(write())
            reader.join(30)
            assert read == list(range(count))
    finally:
        runtime.serve_loop.stop()


async def test_an_error_comes_after_the_items_before_it() -> None:
    stream = StreamingRequest(Context("id"), "method", b"", None)
    stream.receive(Item(stream.id, pack("first")))
    stream.failed(ValueError("broken"))
    values = [stream.items.popleft() for _ in range(3)]
    assert values[0] == pack("first")
    assert isinstance(values[1], Result)
    assert isinstance(values[1].error, ValueError)
    assert values[2] is None
