"""The HTTP server alone, with slow, malicious and faulty clients."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skate.serve._proxy import http_protocol as protocol
from skate.serve._proxy.http_server import HttpServer, bind
from skate.serve._proxy.limits import Limits
from skate.serve._runtime.loop import ServeLoop
from tests.serve.sockets import RawClient, ask, status_of

GOOD = b"GET /good HTTP/1.1\r\nhost: x\r\n\r\n"
LAST = b"GET /good HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
POST = b"POST /good HTTP/1.1\r\nhost: x\r\n"


class App:
    """An ASGI application that says what it was sent, and notes who went away."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.gate: asyncio.Event | None = None
        self.someone_left = threading.Event()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.seen.append({"path": scope["path"], "gone": True})
                self.someone_left.set()
                return
            body += message["body"]
            more = message["more_body"]
        self.seen.append({"path": scope["path"], "headers": scope["headers"], "body": body})
        if self.gate is not None:
            await self.gate.wait()
        if scope["path"] == "/stream":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for part in (b"one", b"two"):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
            return
        answer = b"%s %s %d" % (scope["method"].encode(), scope["path"].encode(), len(body))
        headers = [(b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


class Edge:
    """A running server."""

    def __init__(self, loop: ServeLoop, limits: Limits, options: dict[str, Any]) -> None:
        self.app = App()
        self.loop = loop
        socket = bind("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{socket.getsockname()[1]}"
        self.server = HttpServer(self.app, socket, options, limits)
        loop.wait(self.server.start())

    def still_answers(self) -> bool:
        return ask(self.url, LAST).endswith(b"GET /good 0")


Start = Callable[..., Edge]


@pytest.fixture(params=["httptools", "h11"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have requests parsed by one library or the other."""
    if request.param == "h11":
        from skate.serve._proxy.http_protocol_h11 import H11

        def make(limits: Limits, edge: Any) -> type[asyncio.Protocol]:
            return type("GuardedH11", (H11,), {"limits": limits, "lingering": set()})

        monkeypatch.setattr("skate.serve._proxy.http_server.make_protocol", make)
    return str(request.param)


@pytest.fixture
def start(parser: str) -> Iterator[Start]:
    """Start servers, and stop them after the test."""
    loop = ServeLoop("test-edge")
    running: list[Edge] = []

    def go(limits: Limits | None = None, **options: Any) -> Edge:
        running.append(Edge(loop, limits or Limits(), options))
        return running[-1]

    yield go
    for edge in running:
        loop.wait(edge.server.stop())
    loop.stop()


BAD = {
    "nonsense": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03nonsense\r\n\r\n",
    "no method": b" / HTTP/1.1\r\nhost: x\r\n\r\n",
    "a NUL in the path": b"GET /\x00 HTTP/1.1\r\nhost: x\r\n\r\n",
    "a NUL in a name": b"GET / HTTP/1.1\r\nhost: x\r\nx\x00y: 1\r\n\r\n",
    "a NUL in a value": b"GET / HTTP/1.1\r\nhost: x\r\nx: 1\x002\r\n\r\n",
    "a name with a space": b"GET / HTTP/1.1\r\nhost: x\r\nx y: 1\r\n\r\n",
    "a line without a colon": b"GET / HTTP/1.1\r\nhost: x\r\nnonsense\r\n\r\n",
    "a path that is not ASCII": b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n",
    "a chunk without a size": POST + b"transfer-encoding: chunked\r\n\r\nxyz\r\nabc\r\n0\r\n\r\n",
    "a chunk with a negative size": POST + b"transfer-encoding: chunked\r\n\r\n-1\r\na\r\n0\r\n\r\n",
    "a chunk with a huge size": POST
    + b"transfer-encoding: chunked\r\n\r\n"
    + b"f" * 40
    + b"\r\na\r\n0\r\n\r\n",
    "two lengths": POST + b"content-length: 3\r\ncontent-length: 5\r\n\r\nabcde",
    "a negative length": POST + b"content-length: -3\r\n\r\nabc",
    "a length in words": POST + b"content-length: three\r\n\r\nabc",
    "a huge length": POST + b"content-length: " + b"9" * 40 + b"\r\n\r\nabc",
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_not_http_is_refused(start: Start, kind: str) -> None:
    edge = start()
    assert status_of(ask(edge.url, BAD[kind])) in (400, 413)
    assert edge.still_answers()


@pytest.mark.parametrize("kind", BAD)
def test_what_is_not_http_is_refused_byte_by_byte_too(start: Start, kind: str) -> None:
    edge = start()
    with RawClient(edge.url) as client:
        for byte in BAD[kind]:
            client.send(bytes([byte]))
        assert status_of(client.read_all()) in (400, 413)
    assert edge.still_answers()


@pytest.mark.parametrize("version", [b"", b" HTTP/0.9", b" HTTP/2.0", b" HTTP/9.9", b" HTTP/1"])
def test_other_versions_are_answered_or_refused(start: Start, version: bytes) -> None:
    edge = start()
    head = b"GET /good" + version + b"\r\nhost: x\r\nconnection: close\r\n\r\n"
    assert status_of(ask(edge.url, head)) in (200, 400)
    assert edge.still_answers()


@pytest.mark.parametrize(
    "hosts",
    [b"", b"host: a\r\nhost: a\r\n", b"host: a\r\nHOST: b\r\n", b"host: a b\r\n", b"host: a/b\r\n"],
)
def test_a_request_has_one_host(start: Start, hosts: bytes) -> None:
    edge = start()
    assert status_of(ask(edge.url, b"GET /good HTTP/1.1\r\n" + hosts + b"\r\n")) == 400
    assert edge.app.seen == []
    assert status_of(ask(edge.url, b"GET /good HTTP/1.0\r\n\r\n")) == 200


def test_a_server_on_loopback_answers_to_names_of_its_own(start: Start) -> None:
    edge = start(Limits.of({"host": "127.0.0.1"}))
    upgrade = (
        b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: x\r\nsec-websocket-version: 13\r\n"
    )
    for host in (b"localhost", b"LocalHost.:8000", b"a.localhost:1", b"127.0.0.1:80", b"[::1]:80"):
        assert status_of(ask(edge.url, LAST.replace(b"host: x", b"host: " + host))) == 200, host
    seen = len(edge.app.seen)
    for head in (
        b"GET /good HTTP/1.1\r\nhost: evil.example\r\n",
        b"GET /good HTTP/1.1\r\nhost: localhost.evil.example:8000\r\n",
        b"GET /good HTTP/1.1\r\nhost: evil.example\r\n" + upgrade,
        b"GET http://evil.example/good HTTP/1.1\r\nhost: localhost\r\n",
    ):
        answer = ask(edge.url, head + b"\r\n")
        assert status_of(answer) == 421
        assert b"allowed_hosts" in answer
    assert len(edge.app.seen) == seen


def test_a_request_has_one_length(start: Start) -> None:
    # Two servers in a row that read such a request differently are how requests are smuggled.
    edge = start()
    smuggled = b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n"
    both = POST + b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    assert status_of(ask(edge.url, both + smuggled)) == 400
    assert [seen for seen in edge.app.seen if "gone" not in seen] == []
    assert edge.still_answers()


def test_trailers_are_no_headers(start: Start) -> None:
    edge = start()
    body = b"3\r\nabc\r\n0\r\nauthorization: forged\r\n\r\n"
    answer = ask(edge.url, POST + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n" + body)
    assert answer.endswith(b"POST /good 3")
    assert b"authorization" not in dict(edge.app.seen[0]["headers"])


def test_a_head_that_is_too_long_is_refused(start: Start) -> None:
    edge = start(Limits(header_bytes=4000))
    long = b"GET /good HTTP/1.1\r\nhost: x\r\nx-long: " + b"a" * 5000
    assert status_of(ask(edge.url, long + b"\r\n\r\n")) == 431
    assert status_of(ask(edge.url, long)) == 431  # the line does not even end
    many = b"".join(b"x-%d: 1\r\n" % number for number in range(1000))
    assert status_of(ask(edge.url, b"GET /good HTTP/1.1\r\nhost: x\r\n" + many + b"\r\n")) == 431
    assert status_of(ask(edge.url, b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nhost: x\r\n\r\n")) == 431
    assert [seen for seen in edge.app.seen if "gone" not in seen] == []
    assert edge.still_answers()


def test_a_head_in_small_pieces_is_measured_as_a_whole(start: Start) -> None:
    edge = start(Limits(header_bytes=4000))
    with RawClient(edge.url) as client:
        client.send(b"GET /good HTTP/1.1\r\nhost: x\r\n")
        for number in range(500):
            client.send(b"x-%d: aaaaaaaaaa\r\n" % number)
        assert status_of(client.read_all()) == 431


def test_a_head_just_within_the_limit_is_taken(start: Start) -> None:
    edge = start(Limits(header_bytes=4000))
    head = b"GET /good HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-long: " + b"a" * 3800 + b"\r\n\r\n"
    assert status_of(ask(edge.url, head)) == 200


def test_a_long_body_before_a_head_does_not_count_as_head(start: Start) -> None:
    edge = start(Limits(header_bytes=1000))
    body = b"b" * 50_000
    answer = ask(edge.url, POST + b"content-length: 50000\r\n\r\n" + body + LAST)
    assert answer.count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize("expect", [b"", b"expect: 100-continue\r\n"])
def test_a_body_that_is_announced_too_long_is_refused_unread(start: Start, expect: bytes) -> None:
    edge = start(Limits(body_bytes=1000))
    answer = ask(edge.url, POST + expect + b"content-length: 100000000\r\n\r\n")
    assert status_of(answer) == 413
    assert b"1000 bytes" in answer
    assert all(seen.get("gone") for seen in edge.app.seen)
    assert edge.still_answers()


def test_a_client_that_goes_on_sending_can_read_why_it_was_refused(start: Start) -> None:
    edge = start(Limits(body_bytes=1000))
    with RawClient(edge.url) as client:
        client.send(POST + b"content-length: 100000000\r\n\r\n")
        for _ in range(100):
            client.send(b"x" * 10_000)
        assert status_of(client.read_all()) == 413


def test_a_chunked_body_that_becomes_too_long_is_refused(start: Start) -> None:
    edge = start(Limits(body_bytes=1000))
    with RawClient(edge.url) as client:
        client.send(POST + b"transfer-encoding: chunked\r\n\r\n")
        for _ in range(20):
            client.send(b"64\r\n" + b"x" * 100 + b"\r\n")
        assert status_of(client.read_all()) == 413
    at_once = b"5dc\r\n" + b"x" * 1500 + b"\r\n0\r\n\r\n"
    assert status_of(ask(edge.url, POST + b"transfer-encoding: chunked\r\n\r\n" + at_once)) == 413
    assert edge.still_answers()


def test_framing_without_content_ends(start: Start) -> None:
    edge = start(Limits(header_bytes=2000))
    with RawClient(edge.url) as client:
        client.send(POST + b"transfer-encoding: chunked\r\n\r\n1;")
        for _ in range(100):
            client.send(b"extension=" + b"a" * 990 + b";")
        assert status_of(client.read_all()) in (400, 431)


def test_framing_without_content_ends_when_it_comes_at_once(start: Start) -> None:
    edge = start(Limits(header_bytes=2000))
    framing = b"1;" + b"extension=" + b"a" * 50_000
    assert status_of(ask(edge.url, POST + b"transfer-encoding: chunked\r\n\r\n" + framing)) in (400, 431)


def test_a_long_body_before_a_request_does_not_count_as_its_framing(start: Start) -> None:
    edge = start(Limits(header_bytes=1000))
    first = POST + b"content-length: 50000\r\n\r\n" + b"b" * 50_000
    with RawClient(edge.url) as client:
        client.send(first + POST + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n2\r\na")
        assert client.read_until(b"50000").endswith(b"50000")
        client.send(b"b\r\n0\r\n\r\n")
        assert client.read_all().endswith(b"POST /good 2")


def test_a_body_in_tiny_chunks_is_taken(start: Start) -> None:
    edge = start(Limits(header_bytes=1000))
    chunks = b"1\r\na\r\n" * 2000 + b"0\r\n\r\n"
    with RawClient(edge.url) as client:
        client.send(POST + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n")
        for start_at in range(0, len(chunks), 600):
            client.send(chunks[start_at : start_at + 600])
        assert client.read_all().endswith(b"POST /good 2000")


@pytest.mark.parametrize("sent", [b"G", b"GET / HTTP/1.1\r\nhost: x\r\n", b"\r\n"])
def test_a_head_that_does_not_come_is_not_waited_for(start: Start, sent: bytes) -> None:
    edge = start(Limits(header_timeout_s=0.2))
    assert status_of(ask(edge.url, sent)) in (408, 400)  # h11 takes an empty line for a bad one
    assert edge.still_answers()


def test_a_connection_without_a_word_is_closed(start: Start) -> None:
    edge = start(Limits(header_timeout_s=0.2))
    assert ask(edge.url, b"") == b""


@pytest.mark.parametrize("sent", [b"GET / HT", b"\r\n"])
def test_a_second_head_is_not_waited_for_longer_than_the_first(start: Start, sent: bytes) -> None:
    edge = start(Limits(header_timeout_s=0.2), keep_alive_timeout_s=60)
    with RawClient(edge.url) as client:
        client.send(GOOD)
        assert client.answer() == (200, b"GET /good 0")
        client.send(sent)
        assert status_of(client.read_all()) in (408, 400)


def test_dripping_bytes_does_not_extend_the_time(start: Start) -> None:
    edge = start(Limits(header_timeout_s=0.5))
    with RawClient(edge.url, timeout=0.05) as client:
        client.send(b"GET / HTTP/1.1\r\n")
        answer = b""
        for number in range(1000):
            client.send(b"x-%d: 1\r\n" % number)
            with contextlib.suppress(TimeoutError):
                answer = client.read_until(b"\r\n\r\n")
                break
        assert status_of(answer) == 408


def test_an_idle_connection_is_kept_as_long_as_was_said(start: Start) -> None:
    edge = start(Limits(header_timeout_s=0.1), keep_alive_timeout_s=1)
    with RawClient(edge.url) as client:
        client.send(GOOD)
        assert client.answer()[0] == 200
        assert client.read_all() == b""


def test_a_body_that_stops_is_not_waited_for(start: Start) -> None:
    edge = start(Limits(body_timeout_s=0.2))
    assert status_of(ask(edge.url, POST + b"content-length: 100\r\n\r\nabc")) == 408
    assert edge.app.someone_left.wait(10)
    assert edge.still_answers()


def test_a_long_answer_is_not_taken_for_a_slow_client(start: Start) -> None:
    edge = start(Limits(header_timeout_s=0.1, body_timeout_s=0.1))
    gate = edge.app.gate = asyncio.Event()
    with RawClient(edge.url) as client:
        client.send(LAST + b"GET /nex")
        edge.loop.wait(asyncio.sleep(0.5))
        edge.loop.call(gate.set)
        assert client.read_all().endswith(b"GET /good 0")


def test_connections_over_the_limit_are_refused(start: Start) -> None:
    edge = start(Limits(connections=3))
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(edge.url)) for _ in range(3)]
        for client in clients:
            client.send(GOOD)
            assert client.answer()[0] == 200
        refused = ask(edge.url, GOOD)
        assert status_of(refused) == 503
        assert b"retry-after: 1" in refused
        clients[0].send(LAST)
        clients[0].read_all()
        assert edge.still_answers()


def test_far_too_many_connections_leave_the_server_alone(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "_MAX_LINGERING", 2)
    edge = start(Limits(connections=1))
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(RawClient(edge.url))
        first.send(GOOD)
        assert first.answer()[0] == 200
        others = [stack.enter_context(RawClient(edge.url)) for _ in range(5)]
        answers = [status_of(other.read_all()) for other in others]
        assert set(answers) == {503, 0}
        first.send(GOOD)
        assert first.answer()[0] == 200


def test_requests_in_a_row_are_answered_in_order(start: Start) -> None:
    edge = start()
    paths = [b"/%d" % number for number in range(5)]
    sent = b"".join(b"GET %s HTTP/1.1\r\nhost: x\r\n\r\n" % path for path in paths)
    with RawClient(edge.url) as client:
        client.send(sent)
        assert [client.answer()[1] for _ in paths] == [b"GET %s 0" % path for path in paths]


def test_nonsense_behind_requests_does_not_pass_for_their_answers(start: Start) -> None:
    edge = start()
    gate = edge.app.gate = asyncio.Event()
    with RawClient(edge.url) as client:
        client.send(GOOD + GOOD + b"\x00\x00\x00\r\n\r\n")
        edge.loop.call(gate.set)
        statuses = [int(status) for status in re.findall(rb"HTTP/1.1 (\d+)", client.read_all())]
    assert statuses in ([], [200, 200, 400])
    edge.app.gate = None
    assert edge.still_answers()


def test_the_old_version_gets_what_it_understands(start: Start) -> None:
    edge = start()
    answer = ask(edge.url, b"GET /good HTTP/1.0\r\n\r\n")
    assert answer.endswith(b"\r\n\r\nGET /good 0")
    stream = ask(edge.url, b"GET /stream HTTP/1.0\r\n\r\n")
    assert stream.endswith(b"\r\n\r\nonetwo")
    assert b"chunked" not in stream


def test_a_client_may_wait_to_be_asked_for_its_body(start: Start) -> None:
    edge = start(Limits(body_timeout_s=0.2))
    with RawClient(edge.url) as client:
        client.send(POST + b"expect: 100-continue\r\ncontent-length: 3\r\n\r\n")
        assert status_of(client.read_until(b"\r\n\r\n")) == 100
        client.send(b"abc")
        assert client.answer() == (200, b"POST /good 3")


def test_a_client_that_closes_its_side_counts_as_gone(start: Start) -> None:
    import socket

    edge = start()
    with RawClient(edge.url) as client:
        client.send(POST + b"content-length: 100\r\n\r\nabc")
        client.socket.shutdown(socket.SHUT_WR)
        assert client.read_all() == b""
    assert edge.still_answers()


WORDS = [
    *(b"GET ", b"POST ", b"CONNECT ", b"/", b"*", b" HTTP/1.1", b" HTTP/1.0", b"\r\n", b"\n", b"\r", b": "),
    *(b"host: x", b"content-length: ", b"3", b"-1", b"99999999999999999999", b"transfer-encoding: chunked"),
    *(b"connection: upgrade", b"upgrade: h2c", b"expect: 100-continue", b"5\r\nhello\r\n", b"0\r\n\r\n"),
    *(b"\r\n\r\n", b"\x00", b"%", b"?", b"#", b"PRI * HTTP/2.0", GOOD, POST),
]


def test_no_bytes_harm_the_server(start: Start) -> None:
    edge = start(Limits(header_timeout_s=0.05, body_timeout_s=0.05), keep_alive_timeout_s=0)

    @settings(max_examples=100, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.one_of(st.sampled_from(WORDS), st.binary(max_size=20)), max_size=15), st.booleans())
    def bombard(pieces: list[bytes], whole: bool) -> None:
        with RawClient(edge.url) as client:
            for piece in [b"".join(pieces)] if whole else pieces:
                client.send(piece)
            answer = client.read_all()
        assert answer == b"" or status_of(answer) in (100, 200, 400, 408, 413), answer

    bombard()
    assert edge.still_answers()


@pytest.mark.parametrize("target", [b"*", b"http://x/good", b"//x", b"/%00", b"/a/../../b", b"?q", b"x:80"])
def test_odd_targets_are_answered_or_refused(start: Start, target: bytes) -> None:
    edge = start()
    for method in (b"GET", b"OPTIONS", b"CONNECT"):
        assert status_of(
            ask(edge.url, method + b" " + target + b" HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        ) in (200, 400)
    assert edge.still_answers()
