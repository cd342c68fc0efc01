"""A replica that is about to stop loses no request in flight."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from skate.serve._replica.server import RequestServer
from skate.serve._wire.frames import Call, Context, Frame, GoAway, GoAwayAck, Reject


class Caller:
    """Stands for the link to a process that calls."""

    name = "caller"

    def __init__(self, server: RequestServer) -> None:
        self.sent: list[Frame] = []
        self.receive: Any = None
        self.closed: Any = None
        server.opened(self)  # type: ignore[arg-type]  # as much of a link as the server needs

    def send(self, frame: Frame, **_: Any) -> None:
        self.sent.append(frame)

    def says(self, frame: Frame) -> None:
        self.receive(self, frame)


def make() -> RequestServer:
    nothing: Any = SimpleNamespace(answer=None)
    return RequestServer(nothing, 1, nothing, nothing, nothing, nothing)


async def test_an_idle_replica_waits_until_each_caller_has_heard_that_it_stops() -> None:
    server = make()
    first, second = Caller(server), Caller(server)
    draining = asyncio.ensure_future(server.drain())
    await asyncio.sleep(0)
    assert first.sent == second.sent == [GoAway()]
    first.says(Call(1, "__call__", Context("a"), b""))  # it was sent before that was heard
    first.says(GoAwayAck())
    await asyncio.sleep(0)
    assert not draining.done()
    assert first.sent[1:] == [Reject(1, 0)]
    second.says(GoAwayAck())
    async with asyncio.timeout(10):
        await draining


async def test_a_caller_that_comes_late_is_told_too_and_one_that_leaves_is_not_waited_for() -> None:
    server = make()
    first = Caller(server)
    draining = asyncio.ensure_future(server.drain())
    await asyncio.sleep(0)
    late = Caller(server)
    assert late.sent == [GoAway()]
    first.closed(first)
    await asyncio.sleep(0)
    assert not draining.done()
    late.says(GoAwayAck())
    async with asyncio.timeout(10):
        await draining
