"""What the paths of Ray's REST APIs share: JSON in requests, and the shapes of answers and of errors."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from skate.dashboard._live import encode
from skate.dashboard._topics import Problem

__all__ = ["Handle", "as_envelope", "as_text", "envelope", "read_json"]

LARGEST_REQUEST: Final = 10 << 20

Handle = Callable[[Request], Awaitable[Response]]


def envelope(message: str, data: dict[str, Any], *, status: int = 200) -> Response:
    """Return an answer in the envelope of Ray's dashboard: `result`, `msg` and `data`."""
    content = encode({"result": status == 200, "msg": message, "data": data})
    return Response(content, status, media_type="application/json")


def as_envelope(handle: Handle) -> Handle:
    """Return a handler that answers problems in the envelope, with null as the result."""

    async def respond(request: Request) -> Response:
        try:
            return await handle(request)
        except Problem as problem:
            return envelope(problem.detail, {"result": None}, status=problem.status)

    return respond


def as_text(handle: Handle) -> Handle:
    """Return a handler that answers problems in plain text, which Ray's clients of jobs and of Serve show."""

    async def respond(request: Request) -> Response:
        try:
            return await handle(request)
        except Problem as problem:
            return PlainTextResponse(problem.detail, problem.status)

    return respond


async def read_json(request: Request) -> dict[str, Any]:
    """Return the object in the body of a request.

    Raises:
        Problem: It is too large, or not an object in JSON.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_REQUEST:
            raise Problem(413, f"The request is larger than {LARGEST_REQUEST >> 20} MiB.")
    try:
        given = json.loads(body)
    except ValueError as error:
        raise Problem(400, f"The request is not JSON: {error}") from None
    except RecursionError:
        raise Problem(400, "The request is nested too deeply.") from None
    if not isinstance(given, dict):
        raise Problem(400, "The request is JSON, but not an object.")
    return given
