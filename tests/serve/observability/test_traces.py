"""OpenTelemetry spans, from the client to the last deployment of a request."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import skate
from skate import serve
from skate.serve._controller.client import connect
from skate.serve._observability.options import ObservabilityOptions
from skate.serve._router.requests import OutgoingRequest
from skate.serve._router.router import Router
from skate.serve._runtime.ids import DeploymentID
from skate.serve._wire.frames import Context
from skate.serve._wire.updates import DeploymentUpdate
from tests.serve.conftest import light
from tests.serve.waiting import until

pytest.importorskip("opentelemetry.sdk.trace")

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


@light
class Behind:
    async def __call__(self) -> str:
        return "from behind"

    async def fail(self) -> None:
        raise LookupError("nothing there")


@light
class Front:
    def __init__(self, behind: Any) -> None:
        self.behind = behind

    async def __call__(self, request: Any) -> str:
        from opentelemetry import trace

        if request.url.path == "/fail":
            return await self.behind.fail.remote()
        with trace.get_tracer("mine").start_as_current_span("my own"):
            return await self.behind.remote()


@pytest.fixture
def traced_url(engine: str, serve_of_module: None) -> Iterator[str]:
    serve.start(http_options={"port": 0}, tracing_config={"enabled": True, "sampling_ratio": 1.0})
    client = connect()
    assert client is not None
    address = client.http_address()
    assert address is not None
    serve.run(Front.bind(Behind.bind()))
    yield f"http://{address[0]}:{address[1]}"
    serve.delete("default")


def spans(trace: str) -> dict[str, dict[str, Any]]:
    """Return the spans of a trace that all processes have written, by name."""
    folder = Path(skate.get_runtime_context().get_session_dir(), "logs", "serve", "spans")
    found = {}
    for path in folder.glob("*.json"):
        text = path.read_text().strip()
        while text:
            try:
                span, end = json.JSONDecoder().raw_decode(text)
            except json.JSONDecodeError:
                break  # it is being written
            text = text[end:].strip()
            if span["context"]["trace_id"] == f"0x{trace}":
                found[span["name"]] = {**span, "file": path.stem}
    return found


def until_spans(trace: str, count: int) -> dict[str, dict[str, Any]]:
    until(lambda: len(spans(trace)) == count, lambda: spans(trace))
    return spans(trace)


def get(url: str, trace: str) -> int:
    request = Request(url, headers={"traceparent": f"00-{trace}-{PARENT}-01"})
    try:
        with urlopen(request, timeout=60) as response:
            return int(response.status)
    except HTTPError as error:
        with error:
            return error.code


def test_a_trace_goes_on_through_all_processes(traced_url: str) -> None:
    assert get(traced_url, TRACE) == 200
    found = until_spans(TRACE, 6)
    way = [
        "proxy_http_request Front GET /",
        "route_to_replica Front __call__",
        "replica_handle_request Front __call__",
        "my own",
        "route_to_replica Behind __call__",
        "replica_handle_request Behind __call__",
    ]
    parent = f"0x{PARENT}"
    for name in way:
        assert found[name]["parent_id"] == parent
        parent = found[name]["context"]["span_id"]
    first, last = found[way[0]], found[way[-1]]
    assert first["kind"] == "SpanKind.SERVER"
    assert first["status"]["status_code"] == "OK"
    assert first["attributes"]["http.status_code"] == 200
    assert last["attributes"]["deployment"] == "Behind"
    assert last["attributes"]["app"] == "default"
    assert last["attributes"]["request_id"] == found[way[1]]["attributes"]["request_id"]
    assert first["file"].startswith("proxy_")
    assert last["file"].startswith("replica_default_Behind_")


def test_what_failed_is_marked(traced_url: str) -> None:
    trace = TRACE[::-1]
    assert get(f"{traced_url}/fail", trace) == 500
    found = until_spans(trace, 5)
    assert found["proxy_http_request Front GET /"]["status"]["status_code"] == "ERROR"
    failed = found["replica_handle_request Behind fail"]
    assert failed["status"]["status_code"] == "ERROR"
    assert "nothing there" in failed["status"]["description"]


class Noting(OutgoingRequest):
    """A request that only notes how it ended."""

    def __init__(self) -> None:
        super().__init__(Context(request_id="1"))
        self.error: Exception | None = None

    def failed(self, error: Exception) -> None:
        self.error = error


async def ended_span(
    end: Callable[[Router, OutgoingRequest], None], news: DeploymentUpdate
) -> tuple[Any, Noting]:
    """Return the span of the way to a replica of a request that gets to none."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from skate.serve._observability.tracing import Tracer

    id, call, exporter, provider = DeploymentID("Behind"), Noting(), InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    router = Router(id, "caller", lambda _: None)
    router.update(news)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skate.serve._observability.hooks.start_route_span", Tracer(provider).start_route_span)
        end(router, call)
    await router.close()
    (span,) = exporter.get_finished_spans()
    return span, call


@pytest.mark.parametrize(
    ("news", "told"),
    [
        (DeploymentUpdate([], max_queued=0), "max_queued_requests is 0"),
        (DeploymentUpdate([], exists=False), "Behind"),
    ],
    ids=["turned away", "gone"],
)
async def test_the_way_of_a_request_that_no_replica_gets_ends(news: DeploymentUpdate, told: str) -> None:
    span, call = await ended_span(Router.submit, news)
    assert span.status.status_code.name == "ERROR"
    assert told in span.status.description
    assert span.events[0].attributes["exception.type"] == (
        f"{type(call.error).__module__}.{type(call.error).__qualname__}"
    )


async def test_the_way_of_a_request_that_is_cancelled_ends() -> None:
    def cancel(router: Router, call: OutgoingRequest) -> None:
        router.submit(call)
        router.cancel(call)

    span, call = await ended_span(cancel, DeploymentUpdate([]))
    assert span.status.status_code.name == "ERROR"
    assert span.status.description == "Request 1 was cancelled."
    assert call.error is None  # cancelling is not an error


def test_calls_of_a_program_belong_to_its_own_trace(traced_url: str) -> None:
    from opentelemetry import trace
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context, use_span

    mine = f"{'5' * 31}1"
    context = SpanContext(int(mine, 16), int(PARENT, 16), is_remote=False, trace_flags=TraceFlags(1))
    with use_span(NonRecordingSpan(context)):
        assert trace.get_current_span(set_span_in_context(trace.get_current_span())).is_recording() is False
        assert serve.get_deployment_handle("Behind", "default").remote().result() == "from behind"
    found = until_spans(mine, 1)["replica_handle_request Behind __call__"]
    assert found["parent_id"] == f"0x{PARENT}"


def test_without_tracing_nothing_of_it_is_imported() -> None:
    import subprocess

    program = (
        "import sys; from skate import serve; import skate.serve._replica, skate.serve._proxy;"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=120).returncode == 0


def test_the_environment_may_ask_for_traces() -> None:
    environ = {
        "SKATE_SERVE_TRACING_EXPORTER_IMPORT_PATH": "module:exporter",
        "SKATE_SERVE_TRACING_SAMPLING_RATIO": "0.5",
    }
    assert ObservabilityOptions.of(None, None, environ).tracing == {
        "enabled": True,
        "exporter_import_path": "module:exporter",
        "sampling_ratio": 0.5,
    }
    assert ObservabilityOptions.of(None, {"enabled": False}, environ).tracing is None
    assert ObservabilityOptions.of(None, None, {}).tracing is None


def test_an_exporter_has_to_give_span_processors() -> None:
    from skate.serve._observability.tracing import _processors

    with pytest.raises(TypeError, match=r"'builtins:dict' must return a list of SpanProcessor, got \{\}"):
        _processors("builtins:dict")
