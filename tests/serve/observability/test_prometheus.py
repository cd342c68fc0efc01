"""Metrics read from a Prometheus server, with a real HTTP server in its place."""

from __future__ import annotations

import gc
import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from skate.serve._observability.prometheus import ADDRESS_VARIABLE, HEADERS_VARIABLE, parse_response
from skate.serve.autoscaling_policy import (
    PrometheusQueryMixin,
    PrometheusSample,
    PrometheusScalar,
    PrometheusVector,
)


def vector(*values: float) -> dict[str, Any]:
    samples = [{"metric": {"instance": str(i)}, "value": [1.0, str(value)]} for i, value in enumerate(values)]
    return {"status": "success", "data": {"resultType": "vector", "result": samples}}


ANSWERS = {
    "scalar(1)": {"status": "success", "data": {"resultType": "scalar", "result": [1.5, "1"]}},
    "up": vector(1, 0),
    "sum(up)": vector(1),
    "nothing": vector(),
    "up[5m]": {"status": "success", "data": {"resultType": "matrix", "result": []}},
}


class Server:
    """Answers queries, and remembers them with their headers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.changed = threading.Condition()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                address = urllib.parse.urlsplit(self.path)
                query = urllib.parse.parse_qs(address.query)["query"][0]
                known = address.path == "/api/v1/query" and query in ANSWERS
                self.send_response(200 if known else 400)
                self.end_headers()
                self.wfile.write(
                    json.dumps(ANSWERS.get(query, {"status": "error", "error": "unknown"})).encode()
                )
                with server.changed:
                    server.asked.append((query, self.headers))
                    server.changed.notify_all()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.http = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def wait_for(self, questions: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.asked) >= questions, timeout=30)

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    gc.collect()  # policies that nobody holds end their threads
    for thread in threading.enumerate():
        if thread.name == "serve-prometheus":
            thread.join()
    made.close()


def until(server: Server, ready: Callable[[], Any]) -> Any:
    """Return what `ready` says once it says something, after as many answers as that takes."""
    while not (value := ready()):
        server.wait_for(len(server.asked) + 1)
    return value


def policy(server: Server, *queries: str, **fields: Any) -> PrometheusQueryMixin:
    return PrometheusQueryMixin(
        prometheus_address=server.address, prometheus_queries=queries, fetch_interval_s=0.001, **fields
    )


def test_answers_keep_their_kind(server: Server) -> None:
    asking = policy(server, "scalar(1)", "up", "nothing")
    results = until(server, lambda: asking.prometheus_results)
    assert results["scalar(1)"] == PrometheusScalar(value=1, timestamp=1.5)
    assert results["up"].samples[1] == PrometheusSample(labels={"instance": "1"}, value=0, timestamp=1)
    assert results["nothing"] == PrometheusVector(samples=())
    assert asking.prometheus_error is None


def test_numbers_are_the_answers_that_are_one(server: Server) -> None:
    asking = policy(server, "scalar(1)", "up", "sum(up)", "nothing")
    assert until(server, lambda: asking.prometheus_metrics) == {"scalar(1)": 1, "sum(up)": 1}


def test_a_query_that_fails_says_why_and_leaves_the_others(server: Server) -> None:
    asking = policy(server, "sum(up)", "unheard of")
    assert until(server, lambda: asking.prometheus_metrics) == {"sum(up)": 1}
    assert "status 400" in until(server, lambda: asking.prometheus_error)


def test_an_answer_that_is_too_old_is_none(server: Server) -> None:
    asking = policy(server, "sum(up)", cache_ttl_s=-1)
    assert asking.prometheus_results is None
    server.wait_for(3)
    assert asking.prometheus_results is None


def test_the_thread_ends_with_the_policy(server: Server) -> None:
    held = [policy(server, "sum(up)")]
    until(server, lambda: held[0].prometheus_results)
    (thread,) = [each for each in threading.enumerate() if each.name == "serve-prometheus"]
    held.clear()
    gc.collect()
    thread.join(timeout=30)
    assert not thread.is_alive()


def test_the_server_and_headers_may_come_from_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"RAY_{ADDRESS_VARIABLE}", server.address)
    monkeypatch.setenv(f"SKATE_{HEADERS_VARIABLE}", '{"Authorization": "Bearer x"}')
    asking = PrometheusQueryMixin(prometheus_queries=["sum(up)"], fetch_interval_s=0.001)
    until(server, lambda: asking.prometheus_results)
    assert server.asked[0][1]["Authorization"] == "Bearer x"


def test_without_a_server_there_is_nothing_and_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    for prefix in ("SKATE_", "RAY_"):
        monkeypatch.delenv(prefix + ADDRESS_VARIABLE, raising=False)
    asking = PrometheusQueryMixin(prometheus_queries=["up"])
    assert asking.prometheus_results is None
    assert asking.prometheus_metrics is None
    assert ADDRESS_VARIABLE in str(asking.prometheus_error)


def test_only_http_is_spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="http://"):
        PrometheusQueryMixin(prometheus_address="file:///etc/passwd")
    monkeypatch.setenv(f"SKATE_{HEADERS_VARIABLE}", "Bearer x")
    with pytest.raises(ValueError, match="must be JSON"):
        PrometheusQueryMixin()


@pytest.mark.parametrize(
    "answer",
    [None, {}, {"status": "error", "error": "bad"}, ANSWERS["up[5m]"], {**vector(1), "data": {"result": 3}}],
)
def test_what_is_no_number_is_an_error(answer: Any) -> None:
    with pytest.raises(ValueError):
        parse_response(answer)
