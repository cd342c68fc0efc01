"""What a deployment may return to an HTTP request, as a response."""

from __future__ import annotations

from typing import Any

from skate.serve._replica.encoding import to_json
from skate.serve._replica.user_code import UserCode
from skate.serve._wire.frames import Headers

__all__ = ["ready_response", "to_response"]

_TEXT = (b"content-type", b"text/plain; charset=utf-8")
_EMPTY = (b"content-type", b"text/plain")
_BYTES = (b"content-type", b"application/octet-stream")
_JSON = (b"content-type", b"application/json")


def ready_response(result: Any) -> tuple[int, Headers, bytes] | None:
    """Return status, headers and body of what can be sent in one piece; None for what streams, or has to be asked.

    Text and bytes are sent as they are, None as an empty text, responses of Starlette as they say, all else as JSON.
    """
    kind = type(result)
    if kind is str:
        body = result.encode()
        return 200, [_TEXT, (b"content-length", b"%d" % len(body))], body
    if kind is bytes:
        return 200, [_BYTES, (b"content-length", b"%d" % len(result))], result
    if kind.__module__ == "starlette.responses" and kind.__name__ in _WHOLE:
        return result.status_code, list(result.raw_headers), result.body
    if callable(result) or hasattr(result, "__next__") or hasattr(result, "__anext__"):
        return None
    if result is None:
        return 200, [_EMPTY, (b"content-length", b"0")], b""
    body = to_json(result)
    return 200, [_JSON, (b"content-length", b"%d" % len(body))], body


_WHOLE = {"Response", "PlainTextResponse", "HTMLResponse", "JSONResponse", "RedirectResponse"}


def to_response(result: Any, code: UserCode) -> Any:
    """Return what streams as an ASGI application: a response, or a generator, whose items are parts of the body."""
    if callable(result):
        return result
    from starlette.responses import StreamingResponse

    async def parts() -> Any:
        async for item in code.items(result):
            yield item if isinstance(item, str | bytes) else to_json(item)

    return StreamingResponse(parts(), media_type="text/plain")
