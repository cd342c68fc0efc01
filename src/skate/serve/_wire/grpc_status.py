"""gRPC statuses of errors, as numbers, so that no process has to import grpc."""

from __future__ import annotations

import asyncio
from typing import Any

from skate.exceptions import RayTaskError
from skate.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    ReplicaUnavailableError,
    RequestCancelledError,
    gRPCStatusError,
)

__all__ = [
    "CANCELLED",
    "DEADLINE_EXCEEDED",
    "INTERNAL",
    "NOT_FOUND",
    "OK",
    "code_number",
    "shorten",
    "status_of",
]

OK = 0
CANCELLED = 1
DEADLINE_EXCEEDED = 4
NOT_FOUND = 5
RESOURCE_EXHAUSTED = 8
INTERNAL = 13
UNAVAILABLE = 14

_LONGEST = 4000  # details travel in a header, whose size clients limit


def code_number(code: Any) -> int:
    """Return the number of a `grpc.StatusCode`, or a number unchanged."""
    number = code.value[0] if hasattr(code, "value") else code
    if not isinstance(number, int):
        raise TypeError(f"A gRPC status must be a grpc.StatusCode, got {code!r}.")
    return number


def status_of(error: BaseException) -> tuple[int, str]:
    """Return the status code and the text that a client receives for an error."""
    if isinstance(error, gRPCStatusError):
        code = INTERNAL if error.grpc_code is None else code_number(error.grpc_code)
        return code, shorten(error.grpc_details or str(error.original_exception))
    return _code(error), shorten(_text(error))


def shorten(text: str) -> str:
    """Return a text shorten to fit into a header."""
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _code(error: BaseException) -> int:
    match error:
        case BackPressureError():
            return RESOURCE_EXHAUSTED
        case DeploymentUnavailableError() | ReplicaUnavailableError():
            return UNAVAILABLE
        case TimeoutError():
            return DEADLINE_EXCEEDED
        case RequestCancelledError() | asyncio.CancelledError():
            return CANCELLED
    return INTERNAL


def _text(error: BaseException) -> str:
    if isinstance(error, RayTaskError):
        # Raised by another deployment: send the message without the traceback, which its log contains.
        cause = getattr(error, "cause", None)
        return _text(cause) if isinstance(cause, BaseException) else str(error)
    return str(error) or type(error).__name__
