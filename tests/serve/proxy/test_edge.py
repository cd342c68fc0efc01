"""Serve exposed to a network: limits, TLS and malicious clients."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from fastapi import FastAPI, WebSocket
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from starlette.requests import Request

import skate
from skate import serve
from skate.serve._controller.client import connect
from skate.serve.generated import serve_pb2, serve_pb2_grpc
from tests.serve.certificates import Authority
from tests.serve.conftest import light
from tests.serve.proxy.test_http import fetch
from tests.serve.proxy.test_http_protocol import WORDS
from tests.serve.sockets import RawClient, ask, status_of

pytestmark = pytest.mark.usefixtures("engine")

GOOD = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
SERVICER = "skate.serve.generated.serve_pb2_grpc.add_UserDefinedServiceServicer_to_server"

Edge = Callable[..., str]


@pytest.fixture
def edge(engine: str) -> Iterator[Edge]:
    """Start Serve with options of HTTP on a free port; returns where. It is shut down after the test."""

    def go(grpc_options: Any = None, **options: Any) -> str:
        serve.start(http_options={"port": 0, **options}, grpc_options=grpc_options)
        client = connect()
        assert client is not None
        address = client.http_address()
        assert address is not None
        scheme = "https" if options.get("ssl_keyfile") else "http"
        return f"{scheme}://{address[0]}:{address[1]}"

    yield go
    serve.shutdown()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@light
class Length:
    """Says how long the body is."""

    async def __call__(self, request: Request) -> str:
        return str(len(await request.body()))

    async def Streaming(self, message: Any) -> Any:  # noqa: N802 - the name is the service's
        yield serve_pb2.UserDefinedResponse(greeting="begun")
        await self.forever()

    async def Method1(self, message: Any) -> Any:  # noqa: N802
        await self.forever()

    async def Method2(self, message: Any) -> Any:  # noqa: N802
        return serve_pb2.UserDefinedResponse2(greeting="well")

    async def forever(self) -> None:
        import asyncio

        await asyncio.Event().wait()


def test_limits_are_options_of_http(edge: Edge) -> None:
    url = edge(
        max_header_bytes=2000,
        max_body_bytes=5000,
        max_connections=20,
        header_timeout_s=0.5,
        body_timeout_s=0.5,
        allowed_hosts=["localhost", "127.0.0.1", "*.example.com"],
    )
    serve.run(Length.bind())
    assert status_of(ask(url, LAST.replace(b"localhost", b"api.example.com"))) == 200
    assert status_of(ask(url, LAST.replace(b"localhost", b"evil.example"))) == 421
    head = b"POST / HTTP/1.1\r\nhost: localhost\r\n"
    assert status_of(ask(url, head + b"x: " + b"a" * 3000 + b"\r\n\r\n")) == 431
    assert status_of(ask(url, head + b"content-length: 5001\r\n\r\n")) == 413
    chunk = b"3e8\r\n" + b"x" * 1000 + b"\r\n"
    assert status_of(ask(url, head + b"transfer-encoding: chunked\r\n\r\n" + chunk * 10)) == 413
    assert status_of(ask(url, head)) == 408
    assert status_of(ask(url, head + b"content-length: 10\r\n\r\nabc")) == 408
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(url)) for _ in range(20)]
        for client in clients:
            client.send(GOOD)
            assert client.answer() == (200, b"0")
        assert status_of(ask(url, GOOD)) == 503
    assert fetch(url, "/", "POST", b"x" * 5000).text == "5000"


@pytest.mark.parametrize(
    "option", ["max_header_bytes", "max_body_bytes", "max_connections", "body_timeout_s"]
)
def test_a_limit_of_nothing_is_refused(edge: Edge, option: str) -> None:
    with pytest.raises(ValueError, match=option):
        edge(**{option: 0})


def test_a_thousand_slow_clients_do_not_keep_a_good_one_from_being_served(edge: Edge) -> None:
    url = edge(header_timeout_s=60)
    serve.run(Length.bind())
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(1000, most - 300)
    partial = (
        b"",
        b"G",
        b"GET / HTTP/1.1\r\nx: ",
        b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nabc",
    )
    with contextlib.ExitStack() as stack:
        for number in range(count):
            stack.enter_context(RawClient(url)).send(partial[number % len(partial)])
        for _ in range(20):
            assert fetch(url, "/", "POST", b"abc").text == "3"
    assert fetch(url).text == "0"


def test_bodies_that_stop_do_not_hold_replicas(edge: Edge) -> None:
    url = edge(body_timeout_s=0.5)
    serve.run(Length.options(max_ongoing_requests=2).bind())
    sent = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nabc"
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(RawClient(url)) for _ in range(4)]
        for client in slow:
            client.send(sent)
        assert [status_of(client.read_all()) for client in slow] == [408] * 4
    assert fetch(url, "/", "POST", b"abc").text == "3"


def test_https(edge: Edge, authority: Authority) -> None:
    key, certificate = authority.issue("server", password="secret")
    url = edge(ssl_keyfile=key, ssl_certfile=certificate, ssl_keyfile_password="secret")
    serve.run(Length.bind())
    answer = ask(url, LAST, context=authority.client())
    assert answer.endswith(b"\r\n\r\n0")
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(url, LAST, context=ssl.create_default_context())
    assert status_of(ask(url, LAST)) == 0  # plain HTTP is not spoken here
    assert ask(url, LAST, context=authority.client()).endswith(b"\r\n\r\n0")


def test_websockets_over_tls(edge: Edge, authority: Authority) -> None:
    from websockets.sync.client import connect as open_socket

    app = FastAPI()

    @light
    @serve.ingress(app)
    class Echo:
        @app.websocket("/echo")
        async def echo(self, socket: WebSocket) -> None:
            await socket.accept()
            await socket.send_text(f"{socket.url.scheme} {await socket.receive_text()}")
            await socket.close()

    key, certificate = authority.issue("server")
    url = edge(ssl_keyfile=key, ssl_certfile=certificate)
    serve.run(Echo.bind())
    with open_socket(url.replace("https", "wss") + "/echo", ssl=authority.client()) as client:
        client.send("hello")
        assert client.recv(timeout=30) == "wss hello"


def test_clients_may_have_to_show_certificates(edge: Edge, authority: Authority, tmp_path: Path) -> None:
    key, certificate = authority.issue("server")
    url = edge(ssl_keyfile=key, ssl_certfile=certificate, ssl_ca_certs=str(authority.file))
    serve.run(Length.bind())
    mine = authority.issue("client")
    assert ask(url, LAST, context=authority.client(mine)).endswith(b"\r\n\r\n0")
    stranger = Authority(tmp_path).issue("stranger")
    for shown in (None, stranger):
        with contextlib.suppress(ssl.SSLError):  # told at the handshake, or when the first bytes are read
            assert ask(url, LAST, context=authority.client(shown)) == b""


def test_a_file_for_tls_that_is_not_there_is_named(edge: Edge, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(Exception, match=r"ssl_keyfile.*missing\.pem"):
        edge(ssl_keyfile=missing, ssl_certfile=missing)
    assert connect() is None


def piece() -> st.SearchStrategy[bytes]:
    """Return bytes that look like a part of a request, more or less."""
    words = st.sampled_from(
        [*WORDS, b"upgrade: websocket", b"sec-websocket-key: x", b"sec-websocket-version: 13"]
    )
    return st.one_of(words, st.binary(max_size=20))


def test_no_bytes_harm_the_edge(edge: Edge) -> None:
    url = edge(header_timeout_s=5, allowed_hosts=["*"])
    serve.run(Length.bind())

    @settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(piece(), min_size=1, max_size=15))
    def bombard(pieces: list[bytes]) -> None:
        with RawClient(url) as client:
            client.send(b"".join(pieces))
            with contextlib.suppress(OSError):
                client.socket.shutdown(socket.SHUT_WR)
            answer = client.read_all()
        assert answer == b"" or status_of(answer) in (100, 101, 200, 400, 404, 405, 413, 426, 431, 505), (
            answer
        )

    bombard()
    assert fetch(url, "/", "POST", b"abc").text == "3"


class Thing(BaseModel):
    name: str
    amounts: list[int]
    next: Thing | None = None


def test_no_values_harm_an_ingress(edge: Edge) -> None:
    app = FastAPI()

    @light
    @serve.ingress(app)
    class Things:
        @app.put("/things/{number}")
        async def put(self, number: int, thing: Thing, often: int = 1) -> dict[str, Any]:
            return {"number": number, "total": sum(thing.amounts) * often}

    url = edge()
    serve.run(Things.bind())
    # JSON has no infinity; sent all the same, FastAPI itself fails to write the 422 that repeats it.
    values = st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["name", "amounts", "next", "else"]) | st.text(), inner, max_size=4
            )
        ),
        max_leaves=10,
    )
    path = st.one_of(st.integers().map(str), st.text(max_size=5))

    @settings(max_examples=100, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(path, st.none() | path, values)
    def bombard(number: str, often: str | None, thing: Any) -> None:
        from urllib.parse import quote

        query = "" if often is None else f"?often={quote(often)}"
        body = json.dumps(thing).encode()
        answer = fetch(
            url, f"/things/{quote(number, safe='')}{query}", "PUT", body, {"content-type": "application/json"}
        )
        assert answer.status in (200, 307, 404, 422), answer.text

    bombard()
    good = fetch(
        url, "/things/1", "PUT", b'{"name": "a", "amounts": [1, 2]}', {"content-type": "application/json"}
    )
    assert good.json() == {"number": 1, "total": 3}


def grpc_address() -> str:
    client = connect()
    assert client is not None
    found = client.grpc_address()
    assert found is not None
    return f"{found[0]}:{found[1]}"


def test_calls_over_grpc_may_have_a_time_limit(edge: Edge) -> None:
    edge({"port": 0, "grpc_servicer_functions": [SERVICER], "request_timeout_s": 0.2})
    serve.run(Length.options(graceful_shutdown_timeout_s=0.1).bind())
    with grpc.insecure_channel(grpc_address()) as channel:
        user = serve_pb2_grpc.UserDefinedServiceStub(channel)
        for call in (user.Method1, lambda message: list(user.Streaming(message))):
            with pytest.raises(grpc.RpcError) as caught:
                call(serve_pb2.UserDefinedMessage())
            error: Any = caught.value
            assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            assert "timed out after 0.2s." in error.details()
        assert user.Method2(serve_pb2.UserDefinedMessage2()).greeting == "well"


def test_grpc_over_tls(edge: Edge, authority: Authority) -> None:
    key, certificate = authority.issue("server")
    files = {"ssl_keyfile": key, "ssl_certfile": certificate, "ssl_ca_certs": str(authority.file)}
    edge({"port": 0, "grpc_servicer_functions": [SERVICER], **files})
    serve.run(Length.bind())
    mine = [Path(name).read_bytes() for name in authority.issue("client")]
    trusted = authority.file.read_bytes()
    question = serve_pb2.UserDefinedMessage2()
    with grpc.secure_channel(grpc_address(), grpc.ssl_channel_credentials(trusted, *mine)) as channel:
        assert serve_pb2_grpc.UserDefinedServiceStub(channel).Method2(question).greeting == "well"
    with grpc.secure_channel(grpc_address(), grpc.ssl_channel_credentials(trusted)) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            serve_pb2_grpc.UserDefinedServiceStub(channel).Method2(question)
        error: Any = caught.value
        assert error.code() is grpc.StatusCode.UNAVAILABLE


def test_a_servicer_function_that_is_not_there_is_named(edge: Edge) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"no_such\.add_Servicer_to_server can't be imported"):
        edge({"port": 0, "grpc_servicer_functions": ["no_such.add_Servicer_to_server"]})
    assert connect() is None


def test_a_port_of_grpc_that_is_in_use_says_by_whom(edge: Edge) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"{port}: the port is in use by process \d+"):
            edge({"port": port, "grpc_servicer_functions": [SERVICER]})
    assert connect() is None


def test_a_proxy_that_dies_comes_back_with_both_of_its_ports(edge: Edge) -> None:
    import psutil

    url = edge({"port": 0, "grpc_servicer_functions": [SERVICER]})
    serve.run(Length.bind())
    client = connect()
    assert client is not None
    before = grpc_address()
    psutil.Process(skate.get(client.actor.start_proxy.remote())["pid"]).kill()
    with grpc.insecure_channel(before) as channel:
        user = serve_pb2_grpc.UserDefinedServiceStub(channel)
        answer = user.Method2(serve_pb2.UserDefinedMessage2(), wait_for_ready=True, timeout=60)
    assert answer.greeting == "well"
    client.http_address()
    assert fetch(url).text == "0"
