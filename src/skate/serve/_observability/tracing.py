"""OpenTelemetry spans of requests: in the proxy, on the way to a replica, and in the replica.

OpenTelemetry is imported only if `serve.start(tracing_config=...)`, the environment or a startup hook of the program
enables tracing. The trace context travels with a request in W3C format.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from skate._api import tracing
from skate.serve._observability import hooks
from skate.serve._observability.hooks import RoutedRequest, ServedRequest
from skate.serve._observability.logs import Component, logs_folder
from skate.serve._observability.options import ObservabilityOptions
from skate.serve._wire.frames import Call, Http, Rpc

if TYPE_CHECKING:
    from skate.serve._runtime.ids import DeploymentID
    from skate.serve._wire.updates import Route
    from skate.serve.context import ReplicaContext

__all__ = [
    "Tracer",
    "current_tracer",
    "set_up",
    "trace_context",
    "use_program_provider",
]

_NAME = "skate.serve"
_current: Tracer | None = None


def current_tracer() -> Tracer | None:
    """Return the tracer of this process, or None."""
    return _current


def trace_context() -> Any:
    """Return the OpenTelemetry context of the current span, or None without a span."""
    from opentelemetry import context, trace

    here = context.get_current()
    return here if trace.get_current_span(here).get_span_context().is_valid else None


def set_up(component: Component, options: ObservabilityOptions) -> Tracer:
    """Enable tracing in this process with the configured exporter."""
    global _current
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

    assert options.tracing is not None
    provider = TracerProvider(
        sampler=ParentBasedTraceIdRatio(options.tracing["sampling_ratio"]),
        resource=Resource.create({"service.name": f"skate-serve-{component.kind}"}),
        shutdown_on_exit=False,
    )
    path = options.tracing["exporter_import_path"]
    for processor in _processors(path) if path else [_to_file(component)]:
        provider.add_span_processor(processor)
    if tracing.tracer() is None:  # otherwise a startup hook has set the provider of the process
        trace.set_tracer_provider(provider)
    _current = Tracer(provider)
    hooks.start_route_span = _current.start_route_span
    return _current


def use_program_provider() -> Tracer:
    """Trace requests with the OpenTelemetry provider that the program or its startup hook has set."""
    global _current
    from opentelemetry import trace

    _current = Tracer(trace.get_tracer_provider(), owns_provider=False)
    hooks.start_route_span = _current.start_route_span
    return _current


def _processors(path: str) -> list[Any]:
    """Return the span processors that a user's function returns.

    Raises:
        TypeError: If it returns anything else.
    """
    from opentelemetry.sdk.trace import SpanProcessor

    module, _, name = path.rpartition(":" if ":" in path else ".")
    made = getattr(importlib.import_module(module), name)()
    if not isinstance(made, list) or not all(isinstance(each, SpanProcessor) for each in made):
        raise TypeError(f"The tracing exporter {path!r} must return a list of SpanProcessor, got {made!r}.")
    return made


def _to_file(component: Component) -> Any:
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    folder = os.path.join(logs_folder(), "spans")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{component.file_stem}.json")

    class FileProcessor(SimpleSpanProcessor):
        """Write spans to a file, and close it on shutdown."""

        def __init__(self) -> None:
            self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed by `shutdown`
            super().__init__(ConsoleSpanExporter(out=self._file))

        def shutdown(self) -> None:
            super().shutdown()
            self._file.close()

    return FileProcessor()


class _ProxySpan:
    """The span of a request in the proxy."""

    def __init__(self, span: Any, codes: Any) -> None:
        self._span = span
        self._codes = codes

    def ended(self, status: int) -> None:
        """Record the status of the request."""
        self._span.set_attribute("http.status_code", status)
        is_error = status >= 500 and status not in (1000, 1001)
        self._span.set_status(self._codes.ERROR if is_error else self._codes.OK)


class _RouteSpan:
    """The span of a request from the router to a replica."""

    def __init__(self, span: Any, codes: Any) -> None:
        self._span = span
        self._codes = codes

    def end(self) -> None:
        """End the span: the request was sent to a replica."""
        self._span.end()

    def fail(self, error: Exception) -> None:
        """End the span with an error: the request reaches no replica."""
        self._span.record_exception(error)
        self._span.set_status(self._codes.ERROR, str(error))
        self._span.end()


class Tracer:
    """Create the spans of this process, under Ray Serve's names.

    Args:
        provider: The OpenTelemetry provider.
        owns_provider: Whether to shut the provider down at the end.
    """

    def __init__(self, provider: Any, *, owns_provider: bool = True) -> None:
        from opentelemetry import propagate, trace

        self._provider = provider
        self._owns_provider = owns_provider
        self._tracer = trace.get_tracer(_NAME, tracer_provider=provider)
        self._propagate = propagate
        self._trace = trace

    def close(self) -> None:
        """Export the remaining spans, unless the program does so."""
        if self._owns_provider:
            self._provider.shutdown()

    @contextmanager
    def proxy_span(self, route: Route, scope: Mapping[str, Any], request_type: str = "http") -> Iterator[Any]:
        """Create the span of a request in the proxy. The client may have started the trace."""
        method = scope.get("method", "WEBSOCKET")
        carrier = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in (b"traceparent", b"tracestate", b"baggage")
        }
        name = f"proxy_{request_type}_request {route.deployment} {method} {route.prefix}"
        attributes = {
            "deployment": route.deployment,
            "app": route.app,
            "request_type": request_type,
            "request_method": method,
            "request_route_path": route.prefix,
            "resource.name": name,
            "http.method": method,
            "http.route": route.prefix,
        }
        with self._tracer.start_as_current_span(
            name,
            context=self._propagate.extract(carrier),  # without a client's span, it is the root
            kind=self._trace.SpanKind.SERVER,
            attributes=attributes,
        ) as span:
            yield _ProxySpan(span, self._trace.StatusCode)

    def start_route_span(self, call: RoutedRequest, id: DeploymentID) -> None:
        """Start the span of a request on its way to a replica, and add it to the request's context."""
        context, deployment = call.context, id.name
        is_http = hasattr(call, "scope")
        method = getattr(call, "method", "__call__")
        name = f"route_to_replica {deployment} {method}"
        span = self._tracer.start_span(
            name,
            context=None if self._has_parent() else self._propagate.extract(context.trace or {}),
            kind=self._trace.SpanKind.SERVER,
            attributes={
                "request_id": context.request_id,
                "deployment": deployment,
                "app": context.app,
                "call_method": method,
                "route": context.route,
                "multiplexed_model_id": context.model,
                "is_http_request": is_http,
                "resource.name": name,
                "http.method": method,
                "http.route": context.route,
            },
        )
        carrier: dict[str, str] = {}
        self._propagate.inject(carrier, self._trace.set_span_in_context(span))
        call.span = _RouteSpan(span, self._trace.StatusCode)
        call.context = msgspec.structs.replace(context, trace=carrier)

    def _has_parent(self) -> bool:
        return self._trace.get_current_span().get_span_context().is_valid

    @contextmanager
    def replica_span(
        self, running: ServedRequest, frame: Call | Http | Rpc, replica: ReplicaContext
    ) -> Iterator[None]:
        """Create the span of a request in a replica, around the user's code."""
        context, deployment = running.context, replica.deployment
        method = "__call__" if isinstance(frame, Http) else frame.method
        name = f"replica_handle_request {deployment} {method}"
        attributes = {
            "request_id": context.request_id,
            "replica_id": replica.replica_tag,
            "deployment": deployment,
            "app": context.app_name,
            "call_method": method,
            "route": context.route,
            "multiplexed_model_id": context.multiplexed_model_id,
            "resource.name": name,
            "http.route": context.route,
            "http.method": frame.scope.method if isinstance(frame, Http) else "CALL",
        }
        with self._tracer.start_as_current_span(
            name,
            context=self._propagate.extract(context.trace or {}),
            kind=self._trace.SpanKind.SERVER,
            attributes=attributes,
        ) as span:
            yield
            if running.status:
                span.set_attribute("http.status_code", str(running.status))
            if running.error is not None:
                span.record_exception(running.error)
                span.set_status(self._trace.StatusCode.ERROR, str(running.error))
