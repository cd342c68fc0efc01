"""Functions that a deployment's code can call about the current request."""

from __future__ import annotations

from typing import Any

__all__ = ["get_trace_context"]


def get_trace_context() -> Any:
    """Return the OpenTelemetry context of the current request, as the parent of further spans.

    Returns:
        The argument `context` of `tracer.start_as_current_span(name, context=...)`; None without tracing.

    Example:
        >>> from skate import serve
        >>> serve.get_trace_context() is None  # no request, and no TracingConfig
        True
    """
    # Imported here, because most programs do not use tracing.
    from skate.serve._watch.tracing import current_tracer, trace_context

    return None if current_tracer() is None else trace_context()
