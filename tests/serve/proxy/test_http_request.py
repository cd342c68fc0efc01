"""An HTTP request on its way through the proxy."""

from __future__ import annotations

from typing import Any

from skate.serve._proxy.http_request import HttpRequest
from skate.serve._wire.frames import Context, Frame, Grant, ResponsePart, Scope
from skate.serve._wire.window import WINDOW_SIZE


class Connection:
    """Keeps the frames that are sent."""

    def __init__(self) -> None:
        self.link: Any = self
        self.sent: list[Frame] = []

    def send(self, frame: Frame) -> None:
        self.sent.append(frame)


def make_request() -> tuple[HttpRequest, Connection]:
    request = HttpRequest(Context("id"), Scope("http", "GET", "/", b"/", b"", []), b"", False)
    connection: Any = Connection()
    request.connection = connection
    return request, connection


def part(body: bytes, *, more: bool = True) -> ResponsePart:
    return ResponsePart(1, 0, 200, [], body, more)


async def test_parts_that_arrived_together_are_joined_in_order() -> None:
    request, _ = make_request()
    for number in range(3):
        request.receive(part(b"%d" % number))
    assert (await request.part()).body == b"012"


async def test_parts_are_granted_again_when_half_of_the_window_was_taken() -> None:
    request, connection = make_request()
    half = WINDOW_SIZE // 2
    for number in range(half - 1):
        request.receive(part(b"x"))
        await request.part()
        assert not connection.sent, number
    request.receive(part(b"x"))
    request.receive(part(b"x"))
    assert (await request.part()).body == b"xx"
    assert connection.sent == [Grant(request.id, half + 1)]


async def test_an_answer_that_has_ended_is_granted_no_more() -> None:
    request, connection = make_request()
    for _ in range(WINDOW_SIZE):
        request.receive(part(b"x"))
    assert request.receive(part(b"x", more=False))
    assert len((await request.part()).body) == WINDOW_SIZE + 1
    assert not connection.sent
