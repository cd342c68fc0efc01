"""The OpenTelemetry spans of a plan: one of the execution, and one of each operator that submits tasks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from skate._api import tracing

__all__ = ["RunSpans"]


class RunSpans:
    """The spans of one execution. The span of an operator lasts from its first task to its last block.

    Args:
        span: The span of the execution.
    """

    def __init__(self, span: tracing.Span) -> None:
        self._span = span
        self._operators: dict[str, tracing.Span] = {}
        self._ended: dict[str, int] = {}  # nanoseconds since the epoch, by operator

    @classmethod
    def start(cls, name: str) -> RunSpans | None:
        """Start the span of an execution; return None while tracing is off."""
        span = tracing.start_span(f"dataset {name}")
        return None if span is None else cls(span)

    def run(self, operator: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function that submits tasks of an operator, under the operator's span."""
        span = self._operators.get(operator)
        if span is None:
            span = self._span.run(tracing.start_span, operator)
            if span is None:  # the session ends
                return function(*args)
            self._operators[operator] = span
        return span.run(function, *args)

    def made(self, operator: str) -> None:
        """Note that a task of an operator has made a block."""
        self._ended[operator] = time.time_ns()

    def close(self, counts: dict[str, dict[str, int]], error: BaseException | None = None) -> None:
        """End all spans.

        Args:
            counts: Attributes for the spans of operators, by operator.
            error: The exception that has ended the execution.
        """
        for operator, span in self._operators.items():
            span.end(self._ended.get(operator), counts.get(operator))
        if error is None:
            self._span.end()
        else:
            self._span.fail(error)
