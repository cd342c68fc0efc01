"""What a deployment may return to an HTTP request, as a response."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from skate.serve._replica.user_code import UserCode
from skate.serve._wire.frames import Headers

__all__ = ["ready_response", "to_response"]

_TEXT = (b"content-type", b"text/plain; charset=utf-8")
_BYTES = (b"content-type", b"application/octet-stream")
_JSON = (b"content-type", b"application/json")


def ready_response(result: Any) -> tuple[int, Headers, bytes] | None:
    """Return status, headers and body of what can be sent in one piece; None for what streams, or has to be asked.

    Text and bytes are sent as they are, responses of Starlette as they say, everything else as JSON.
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
    body = json.dumps(result, separators=(",", ":"), ensure_ascii=False, default=_plain).encode()
    return 200, [_JSON, (b"content-length", b"%d" % len(body))], body


_WHOLE = {"Response", "PlainTextResponse", "HTMLResponse", "JSONResponse", "RedirectResponse"}


def to_response(result: Any, code: UserCode) -> Any:
    """Return what streams as an ASGI application: a response, or a generator, whose items are parts of the body."""
    if callable(result):
        return result
    from starlette.responses import StreamingResponse

    async def parts() -> Any:
        async for item in code.items(result):
            yield item if isinstance(item, str | bytes) else json.dumps(item, default=_plain)

    return StreamingResponse(parts(), media_type="text/plain")


def _plain(value: Any) -> Any:
    """Return values that JSON does not know as ones that it does."""
    if hasattr(value, "model_dump"):  # pydantic
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if hasattr(value, "tolist"):  # arrays and tensors, and their scalars
        return value.tolist()
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    if isinstance(value, bytes):
        return value.decode()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(
        f"A value of type {type(value).__name__} cannot be sent as JSON: return text, bytes, numbers, lists, dicts, or "
        "a starlette Response."
    )
