"""Processors that send rows to a server over HTTP."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from skate.data.llm import HttpRequestProcessorConfig, build_processor
from tests.llm.data.conftest import dataset

pytestmark = pytest.mark.usefixtures("session")


class Server(ThreadingHTTPServer):
    """Answers `{"x": n}` with the double of n, and fails as often as `failures` of the payload says."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/double"
        self.seen: Counter[int] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.tokens: set[str | None] = set()


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        self.server.tokens.add(self.headers["Authorization"])
        self.server.seen[body["x"]] += 1
        if body["x"] < 0:
            self._answer(400, "x is negative")
        elif self.server.seen[body["x"]] <= body.get("failures", 0):
            self._answer(503 if body["x"] % 2 else 429, "later")
        else:
            self._answer(200, json.dumps({"double": 2 * body["x"]}))

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_payloads_are_answered_after_retries(server: Server) -> None:
    config = HttpRequestProcessorConfig(
        url=server.url,
        headers={"Authorization": "Bearer secret"},
        qps=200,
        max_retries=2,
        base_retry_wait_time_in_s=0.01,
        batch_size=4,
    )
    processor = build_processor(
        config,
        preprocess=lambda row: {
            "payload": {"x": row["id"], **({"failures": 2} if row["id"] in (2, 5) else {})}
        },
        postprocess=lambda row: {"id": row["id"], "double": row["http_response"]["double"]},
    )
    rows = processor(dataset([{"id": number} for number in range(9)])).take_all()
    assert rows == [{"id": number, "double": 2 * number} for number in range(9)]
    assert server.seen == {number: 3 if number in (2, 5) else 1 for number in range(9)}
    assert {"x": 0} in server.bodies, "a payload has the fields of its row only"
    assert server.tokens == {"Bearer secret"}


def test_rows_that_the_server_refuses_become_dead_letters(server: Server) -> None:
    config = HttpRequestProcessorConfig(
        url=server.url, max_retries=1, base_retry_wait_time_in_s=0.01, should_continue_on_error=True
    )
    payloads = [{"x": 1, "failures": 0}, {"x": -1, "failures": 0}, {"x": 3, "failures": 5}]
    rows = build_processor(config)(dataset([{"payload": each} for each in payloads])).take_all()
    assert rows[0]["http_response"] == {"double": 2}
    assert [row["http_response"] for row in rows[1:]] == [None, None]
    assert rows[0]["__inference_error__"] == ""
    assert "the status 400: 'x is negative'" in rows[1]["__inference_error__"]
    assert "the status 503: 'later' (max_retries=1)" in rows[2]["__inference_error__"]
    assert server.seen == {1: 1, -1: 1, 3: 2}


def test_a_server_that_does_not_answer_fails_the_job(server: Server) -> None:
    config = HttpRequestProcessorConfig(url="http://127.0.0.1:9/", max_retries=0)
    with pytest.raises(
        RuntimeError, match=r"a row failed: .* returned no response .*The row: .*should_continue_on_error"
    ):
        build_processor(config)(dataset([{"payload": {}}])).take_all()
