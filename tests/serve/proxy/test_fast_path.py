"""The fast path for requests that arrive in one piece: responses do not differ."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from skate import serve
from skate.serve._proxy.fast_path import FastPathRequest
from skate.serve._proxy.http_server import HttpServer, bind
from skate.serve._proxy.limits import Limits
from skate.serve._runtime.loop import ServeLoop
from skate.serve._wire.frames import Context, Headers, ResponsePart, Scope
from skate.serve._wire.updates import Route
from tests.serve.conftest import light
from tests.serve.sockets import RawClient

if TYPE_CHECKING:
    from skate.serve._proxy.http_protocol_httptools import HttpTools

pytestmark = pytest.mark.usefixtures("engine")

Run = Callable[..., Any]
STOP = b"GET /end HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


@light
class Mirror:
    """Answers with what it was asked, in as many ways as there are."""

    async def __call__(self, request: Request) -> Any:
        match request.url.path:
            case "/stream":

                async def parts() -> AsyncIterator[str]:
                    for number in range(1):
                        yield f"{number};"

                return StreamingResponse(parts())
            case "/nothing":
                return Response(status_code=204)
            case "/unchanged":
                return Response(status_code=304)
            case "/hangs-up":
                return Response("bye", headers={"connection": "close"})
            case "/two-lines":
                return Response("x", headers={"a": "b\r\nset-cookie: stolen"})
            case "/wrong-length":
                return Response("x", headers={"content-length": "5"})
            case "/fails":
                raise ValueError("for the test")
        client = request.client.host if request.client else ""
        seen = (
            f"{request.method} {request.url.path}?{request.url.query}|{client}|{request.headers.get('late')}|"
        )
        return seen + (await request.body()).decode()


def said(url: str, *pieces: bytes) -> bytes:
    """Send pieces, each a write of its own, and return all answers but for what differs from time to time."""
    with RawClient(url) as client:
        for piece in pieces:
            client.send(piece)
        answers = client.read_all()
    return re.sub(rb"(?m)^(date|x-request-id): .*\r\n", b"", answers)


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /a%20b?c=d HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nlate: yes\r\n\r\n",
        b"HEAD / HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /stream HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /unchanged HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /hangs-up HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /two-lines HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /wrong-length HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /fails HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx-forwarded-for: 192.0.2.7\r\n\r\n",
        b"GET /-/routes HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
    ids=lambda request: request.split(b" HTTP")[0].decode() + f"-{len(request)}",
)
def test_both_ways_lead_to_the_same_answer(run: Run, url: str, request_: bytes) -> None:
    run(Mirror.bind())
    # What another proxy says of a request is looked at on the long way.
    by_the_long_way = request_.replace(
        b"host: localhost\r\n", b"host: localhost\r\nx-forwarded-proto: http\r\n"
    )
    answer = said(url, request_ + STOP)
    assert answer == said(url, by_the_long_way + STOP)
    assert answer == said(url, request_[:-4], request_[-4:] + STOP)
    if b"two-lines" in request_:
        assert b"\r\nset-cookie" not in answer


def test_a_trailer_of_a_whole_request_is_no_header(run: Run, url: str) -> None:
    run(Mirror.bind())
    sent = b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nlate: yes\r\n\r\n"
    with RawClient(url) as client:
        client.send(sent)
        assert client.answer() == (200, b"POST /?|127.0.0.1|None|x")


def test_requests_that_come_together_are_answered_in_order(run: Run, url: str) -> None:
    run(Mirror.bind())
    paths = ["/1", "/stream", "/2", "/fails", "/3"]
    sent = [f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode() for path in paths]
    answers = said(url, b"".join(sent) + STOP)
    bodies = [b"GET /1?|", b"0;", b"GET /2?|", b"Internal Server Error", b"GET /3?|", b"GET /end?|"]
    places = [answers.index(body) for body in bodies]
    assert places == sorted(places)
    assert answers.count(b"HTTP/1.1 ") == len(bodies)


class Later:
    """An edge that lets the test answer."""

    def __init__(self) -> None:
        self.begun: Future[FastPathRequest] = Future()

    def begin(
        self,
        protocol: HttpTools,
        method: str,
        path: str,
        raw_path: bytes,
        query: bytes,
        headers: Headers,
        body: bytes,
    ) -> bool:
        scope = Scope("http", method, path, raw_path, query, headers)
        router: Any = None  # nothing is sent to a replica
        request = FastPathRequest(
            protocol, router, Route("/", "app", "deployment"), Context("1"), scope, body
        )
        protocol.cycle = request
        self.begun.set_result(request)
        return True

    def answered(self, request: FastPathRequest, status: int) -> None: ...

    def respond_in_task(self, request: FastPathRequest) -> None:
        async def respond(_: Any, __: Any, send: Any) -> None:
            part = await request.part()
            await send({"type": "http.response.start", "status": part.status, "headers": part.headers})
            await send({"type": "http.response.body", "body": part.body})

        request.protocol.start_cycle(request, respond)


def test_a_server_that_ends_answers_what_it_has_and_hangs_up() -> None:
    loop = ServeLoop("test-whole")
    edge, listening = Later(), bind("127.0.0.1", 0)
    server = HttpServer(None, listening, {}, Limits(), edge)
    loop.wait(server.start())
    try:
        with RawClient(f"http://127.0.0.1:{listening.getsockname()[1]}") as client:
            client.send(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            request = edge.begun.result(10)
            ending = loop.submit(server.stop())
            while request.keep_alive:  # until it has been told
                time.sleep(0.001)
            loop.call(
                request.receive, ResponsePart(request.id, 0, 200, [(b"content-length", b"2")], b"ok", False)
            )
            answer = client.read_all()
            assert b"connection: close" in answer
            assert answer.endswith(b"ok")
            ending.result(10)
    finally:
        loop.stop()


def test_a_whole_request_has_its_time_limit(engine: str) -> None:
    import asyncio

    @light
    class Sleepy:
        async def __call__(self) -> None:
            await asyncio.Event().wait()

    serve.shutdown()
    serve.start(http_options={"port": 0, "request_timeout_s": 0.2})
    try:
        serve.run(Sleepy.bind())
        host, port = serve.address()
        with RawClient(f"http://{host}:{port}") as client:
            client.send(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            status, body = client.answer()
            assert status == 408
            assert b"timed out after 0.2 s" in body
    finally:
        serve.shutdown()
