"""Requests generated from the schema of an ingress: Serve answers each as FastAPI does without Serve."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode, checks

from skate import serve
from tests.serve import shop
from tests.serve.observability.test_metrics import until_total
from tests.serve.proxy.test_http import fetch

# By reference: pydantic cannot rebuild models that refer to each other when they are pickled by value.
pytestmark = pytest.mark.usefixtures("by_reference", "engine")

# Each server has its own.
OWN_HEADERS = {"date", "server", "x-request-id"}
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.positive_data_acceptance,
    checks.missing_required_header,
    checks.unsupported_method,
]


@dataclass(frozen=True)
class Answer:
    """What a server said: all of it that is not about the server itself."""

    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes


class Line:
    """A connection to a server that is kept for as long as the server keeps it."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._socket: socket.socket | None = None

    def ask(self, method: str, pieces: Sequence[bytes]) -> Answer:
        """Send a request in pieces, and read its answer."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address, 30)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        is_over = True  # unless the answer is read to its end
        try:
            for piece in pieces:
                self._socket.sendall(piece)
            with http.client.HTTPResponse(self._socket, method=method) as response:
                response.begin()
                body = response.read()
                headers = [(name.lower(), value) for name, value in response.getheaders()]
                is_over = response.will_close
        finally:
            if is_over:
                self.close()
        kept = sorted(header for header in headers if header[0] not in OWN_HEADERS)
        return Answer(response.status, response.reason, kept, body)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


@pytest.fixture
def plain() -> Iterator[Line]:
    """The shop behind uvicorn alone."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(
            shop.plain(), http="httptools", log_config=None, access_log=False, timeout_keep_alive=90
        )
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    line = Line(*listening.getsockname())
    yield line
    line.close()
    server.should_exit = True
    thread.join()
    listening.close()


@pytest.fixture
def served(run: Callable[..., Any], url: str) -> Iterator[Line]:
    """The shop behind Serve."""
    run(shop.served(), name=f"shop-{uuid.uuid4().hex}")  # by which its requests are counted
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    line = Line(parts.hostname, parts.port)
    yield line
    line.close()


@dataclass(frozen=True)
class Manner:
    """How a request is put on the wire."""

    cuts: Sequence[int] = ()  # where one piece ends and the next begins
    is_chunked: bool = False
    is_last: bool = False  # of its connection

    def pieces(self, request: requests.PreparedRequest) -> list[bytes]:
        """Return the bytes of a request."""
        headers: dict[str, str | bytes] = {"Host": "localhost", **request.headers}
        body = request.body or b""
        if isinstance(body, str):
            body = body.encode()
        if self.is_last:
            headers["Connection"] = "close"
        if self.is_chunked and body:
            del headers["Content-Length"]
            headers["Transfer-Encoding"] = "chunked"
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        lines = [f"{request.method} {request.path_url} HTTP/1.1".encode("ascii")]
        for name, value in headers.items():
            text = value if isinstance(value, bytes) else value.encode("latin-1")
            lines.append(name.encode("ascii") + b": " + text)
        data = b"\r\n".join([*lines, b"", body])
        ends = [*sorted({cut for cut in self.cuts if cut < len(data)}), len(data)]
        return [data[start:end] for start, end in pairwise([0, *ends])]


manners = st.builds(
    Manner, st.lists(st.integers(1, 500), max_size=3), is_chunked=st.booleans(), is_last=st.booleans()
)


class Comparison:
    """Asks both servers, and expects one answer of both, which is one that the schema tells of."""

    def __init__(self, served: Line, plain: Line) -> None:
        self._served, self._plain = served, plain
        self.sent = 0
        self.statuses: set[int] = set()

    def __call__(self, case: Case, manner: Manner) -> None:
        request = requests.Request(**case.as_transport_kwargs()).prepare()
        pieces = manner.pieces(request)
        expected = self._plain.ask(case.method, pieces)
        self.sent += 1
        answer = self._served.ask(case.method, pieces)
        assert answer == expected, repr(pieces)
        self.statuses.add(answer.status)
        headers: dict[str, list[str]] = {}
        for name, value in answer.headers:
            headers.setdefault(name, []).append(value)
        case.validate_response(
            schemathesis.Response(answer.status, headers, answer.body, request, 0.0, verify=False), CHECKS
        )


def operations(url: str) -> list[Any]:
    """Return what the shop can be asked for, as it says itself."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", config=schemathesis.Config(seed=1))
    return [found.ok() for found in schema.get_all_operations()]


def expect_health(url: str, sent: int) -> None:
    """Expect that the shop is as it was before it was sent so many requests, none of which is still under way."""
    order = {"customer": "me", "lines": [{"article": "tea", "amount": 1}]}
    answer = fetch(url, "/orders?dry=1", "POST", json.dumps(order), {"content-type": "application/json"})
    assert (answer.status, answer.json()["price"]) == (201, 2)
    ((name, status),) = serve.status().applications.items()
    assert status.status == "RUNNING"
    for deployment in status.deployments.values():
        assert (deployment.status, deployment.replica_states) == ("HEALTHY", {"RUNNING": 1})
    until_total("serve_num_http_requests_total", sent + 2, application=name)  # the schema, and the order
    for gauge in (
        "deployment_queued_queries",
        "num_ongoing_requests_at_replicas",
        "replica_processing_queries",
    ):
        until_total(f"serve_{gauge}", 0, application=name)


@pytest.mark.parametrize(
    ("mode", "statuses"), [(GenerationMode.POSITIVE, {200, 201}), (GenerationMode.NEGATIVE, {422})]
)
def test_what_is_made_up_from_the_schema_is_answered_as_without_serve(
    mode: GenerationMode, statuses: set[int], url: str, served: Line, plain: Line
) -> None:
    compare = Comparison(served, plain)
    for operation in operations(url):

        @settings(
            max_examples=20,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(operation.as_strategy(mode), manners)
        def bombard(case: Case, manner: Manner) -> None:
            compare(case, manner)

        bombard()
    assert compare.statuses >= statuses
    expect_health(url, compare.sent)


def test_the_limits_that_the_schema_names_are_those_without_serve(
    url: str, served: Line, plain: Line
) -> None:
    compare = Comparison(served, plain)
    for operation in operations(url):
        schema = operation.schema
        for case in schema.iter_coverage_cases(
            operation, generation_modes=list(GenerationMode), generation_config=schema.config.generation
        ):
            compare(case, Manner())
    assert compare.statuses >= {200, 201, 405, 422}
    expect_health(url, compare.sent)
