"""What a deployment's code may ask about the request it answers."""

from __future__ import annotations

from typing import Any

__all__ = ["get_trace_context"]


def get_trace_context() -> Any:
    """Return the OpenTelemetry context of the request that runs here, for spans of one's own.

    Returns:
        What `tracer.start_as_current_span(name, context=...)` takes; None where no traces are made.

    Example:
        >>> from skate import serve
        >>> serve.get_trace_context() is None  # no request, and no TracingConfig
        True
    """
    # Most programs make no traces, and need none of this.
    from skate.serve._observability.tracing import current_tracer, trace_context

    return None if current_tracer() is None else trace_context()
