"""Functions for deployment code."""

from __future__ import annotations

from typing import Any

__all__ = ["get_trace_context"]


def get_trace_context() -> Any:
    """Return the OpenTelemetry context of the current request, to create further spans.

    Returns:
        A context for `tracer.start_as_current_span(name, context=...)`, or None without tracing.

    Example:
        >>> from skate import serve
        >>> serve.get_trace_context() is None  # no request, and no TracingConfig
        True
    """
    # Imported here because most programs do not use tracing.
    from skate.serve._observability.tracing import current_tracer, trace_context

    return None if current_tracer() is None else trace_context()
