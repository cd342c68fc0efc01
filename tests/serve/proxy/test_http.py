"""Requests over HTTP, with real clients."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse

from skate import serve
from tests.serve.conftest import light

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("engine")]


class Answer:
    """A response, read to its end."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


def fetch(
    url: str, path: str = "/", method: str = "GET", body: Any = None, headers: dict[str, str] | None = None
) -> Answer:
    """Send one request."""
    parts = urlsplit(url)
    assert parts.hostname
    connection = HTTPConnection(parts.hostname, parts.port, timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, response.read())
    finally:
        connection.close()


@light
class Echo:
    async def __call__(self, request: Request) -> Any:
        match request.query_params.get("as"):
            case "text":
                return "plain"
            case "bytes":
                return b"\x00\x01"
            case "response":
                return PlainTextResponse("teapot", status_code=418, headers={"x-kind": "tea"})
            case "nothing":
                return None
            case "stream":
                return StreamingResponse(self.parts())
            case "generator":
                return self.parts()
            case "error":
                raise ValueError("no good")
        return {
            "method": request.method,
            "path": request.url.path,
            "query": dict(request.query_params),
            "body": (await request.body()).decode(),
            "header": request.headers.get("x-test"),
        }

    async def parts(self) -> AsyncIterator[str]:
        for number in range(3):
            yield f"{number};"


def test_a_request_is_seen_as_it_was_sent(run: Callable[..., Any], url: str) -> None:
    run(Echo.bind())
    answer = fetch(url, "/a/b?x=1", "POST", "hello", {"x-test": "yes"})
    assert answer.json() == {
        "method": "POST",
        "path": "/a/b",
        "query": {"x": "1"},
        "body": "hello",
        "header": "yes",
    }
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("kind", "status", "body"),
    [
        ("text", 200, b"plain"),
        ("bytes", 200, b"\x00\x01"),
        ("response", 418, b"teapot"),
        ("nothing", 200, b""),
        ("stream", 200, b"0;1;2;"),
        ("generator", 200, b"0;1;2;"),
        ("error", 500, b"Internal Server Error"),
    ],
)
def test_what_a_deployment_may_return(
    run: Callable[..., Any], url: str, kind: str, status: int, body: bytes
) -> None:
    run(Echo.bind())
    answer = fetch(url, f"/?as={kind}")
    assert (answer.status, answer.body) == (status, body)


def test_a_function_may_be_deployed(run: Callable[..., Any], url: str) -> None:
    @light
    def hello(request: Request) -> str:
        return f"hello {request.query_params['name']}"

    @light
    def silent() -> str:
        return "nothing asked"

    run(hello.bind())
    assert fetch(url, "/?name=you").text == "hello you"
    run(silent.bind())
    assert fetch(url).text == "nothing asked"


def test_every_answer_has_a_request_id(run: Callable[..., Any], url: str) -> None:
    @light
    class Ids:
        async def __call__(self) -> str:
            context = serve.context._get_request()
            assert context is not None
            return context.request_id

    run(Ids.bind())
    answer = fetch(url, headers={"X-Request-ID": "mine"})
    assert (answer.text, answer.headers["x-request-id"]) == ("mine", "mine")
    made = fetch(url)
    assert made.text == made.headers["x-request-id"] != ""


def test_several_applications_share_the_port(run: Callable[..., Any], url: str) -> None:
    @light
    class Says:
        def __init__(self, what: str) -> None:
            self.what = what

        async def __call__(self, request: Request) -> str:
            return f"{self.what} {request.scope['root_path']} {request.url.path}"

    run(Says.bind("all"), name="all")
    run(Says.bind("one"), name="one", route_prefix="/one")
    run(Says.bind("deep"), name="deep", route_prefix="/one/deep")
    assert fetch(url, "/").text == "all  /"
    assert fetch(url, "/one").text == "one /one /one"
    assert fetch(url, "/one/deep/er").text == "deep /one/deep /one/deep/er"
    assert fetch(url, "/oneself").text == "all  /oneself"
    assert fetch(url, "/-/routes").json() == {"/": "all", "/one": "one", "/one/deep": "deep"}
    serve.delete("one")
    assert fetch(url, "/one").text == "all  /one"


def test_a_prefix_is_given_once(run: Callable[..., Any], url: str) -> None:
    run(Echo.bind(), name="first")
    with pytest.raises(ValueError, match='belongs to application "first"'):
        run(Echo.bind(), name="second")


def test_a_path_without_an_application_is_not_found(run: Callable[..., Any], url: str) -> None:
    run(Echo.bind(), route_prefix="/here")
    answer = fetch(url, "/there")
    assert answer.status == 404
    assert "/-/routes" in answer.text
    assert fetch(url, "/-/healthz").text == "success"


def test_a_connection_serves_many_requests(run: Callable[..., Any], url: str) -> None:
    run(Echo.bind())
    parts = urlsplit(url)
    assert parts.hostname
    connection = HTTPConnection(parts.hostname, parts.port, timeout=30)
    for number in range(20):
        connection.request("POST", f"/{number}", "x" * number)
        response = connection.getresponse()
        assert json.loads(response.read())["body"] == "x" * number
    connection.close()


@pytest.mark.parametrize("size", [0, 1, 100_000, 3_000_000])
def test_bodies_of_any_size_arrive_and_come_back(run: Callable[..., Any], url: str, size: int) -> None:
    @light
    class Mirror:
        async def __call__(self, request: Request) -> bytes:
            return await request.body()

    run(Mirror.bind())
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    assert fetch(url, "/", "POST", body).body == body


def test_a_long_stream_waits_for_a_slow_reader(run: Callable[..., Any], url: str) -> None:
    @light
    class Long:
        def __init__(self) -> None:
            self.produced = 0

        async def __call__(self) -> StreamingResponse:
            return StreamingResponse(self.parts())

        async def parts(self) -> AsyncIterator[bytes]:
            for _ in range(2000):
                self.produced += 1
                yield b"x" * 50_000

        async def count(self) -> int:
            return self.produced

    handle = run(Long.bind())
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port)) as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        client.recv(1000)
        # Nobody reads: what is produced ends where all buffers on the way are full.
        seen = -1
        while (now := handle.count.remote().result()) != seen:
            seen = now
            threading.Event().wait(0.3)
        assert seen < 1000
        read = 0
        while read < 50_000_000:
            read += len(client.recv(1_000_000))
    assert handle.count.remote().result() > seen


def test_a_client_that_goes_away_cancels_its_request(run: Callable[..., Any], url: str) -> None:
    @light
    class Patient:
        def __init__(self) -> None:
            self.begun = asyncio.Event()
            self.over = asyncio.Event()

        async def __call__(self) -> str:
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.over.set()
            return "never"

        async def has_begun(self) -> None:
            await self.begun.wait()

        async def is_over(self) -> bool:
            await self.over.wait()
            return True

    handle = run(Patient.bind())
    parts = urlsplit(url)
    client = socket.create_connection((parts.hostname, parts.port))
    client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
    handle.has_begun.remote().result(timeout_s=30)
    client.close()
    assert handle.is_over.remote().result(timeout_s=30)


def test_requests_over_the_limit_are_told_when_to_come_back(run: Callable[..., Any], url: str) -> None:
    @light(max_ongoing_requests=1, max_queued_requests=1, graceful_shutdown_timeout_s=0.1)
    class Slow:
        def __init__(self) -> None:
            self.gate = asyncio.Event()
            self.begun = asyncio.Event()

        async def __call__(self) -> str:
            self.begun.set()
            await self.gate.wait()
            return "done"

    run(Slow.bind())
    answers: list[Answer] = []
    lock = threading.Lock()
    one_refused = threading.Event()

    def go() -> None:
        answer = fetch(url)
        with lock:
            answers.append(answer)
        if answer.status == 503:
            one_refused.set()

    threads = [threading.Thread(target=go, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert one_refused.wait(30)
    refused = [answer for answer in answers if answer.status == 503]
    assert refused[0].headers["retry-after"] == "1"
    assert "max_queued_requests is 1" in refused[0].text
    serve.delete("default")
    for thread in threads:
        thread.join(30)


def test_a_port_in_use_says_by_whom(url: str) -> None:
    from skate.serve._proxy.http_server import bind

    host, port = urlsplit(url).hostname, urlsplit(url).port
    assert host
    assert port
    with pytest.raises(OSError, match=rf"{port}: the port is in use by process \d+ .*choose another port"):
        bind(host, port)


def test_generators_that_are_not_coroutines_stream_too(run: Callable[..., Any], url: str) -> None:
    @light
    class Counter:
        def __call__(self) -> Iterator[str]:
            for number in range(5):
                yield f"{number}\n"

    run(Counter.bind())
    assert fetch(url).text == "0\n1\n2\n3\n4\n"


def test_a_json_response_is_sent_as_it_is(run: Callable[..., Any], url: str) -> None:
    @light
    async def answer() -> JSONResponse:
        return JSONResponse({"a": [1, 2]}, status_code=201)

    run(answer.bind())
    found = fetch(url)
    assert (found.status, found.json()) == (201, {"a": [1, 2]})
