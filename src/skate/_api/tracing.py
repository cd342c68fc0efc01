"""OpenTelemetry spans, for the libraries."""

from __future__ import annotations

from skate._base.tracing import Span, carry, span, start_span, tracer

__all__ = ["Span", "carry", "span", "start_span", "tracer"]
