"""Values that deployments return, encoded as HTTP responses and JSON.

Ray passes every value to FastAPI's `jsonable_encoder`, which walks through the whole value in Python. This module uses
the encoder of the standard library, which calls `_encode` only for types that JSON does not have. FastAPI is imported
for rare types only, and is not required.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import ipaddress
import json
import pathlib
import re
import sys
import uuid
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from skate.serve._replica.user_code import UserCode
from skate.serve._wire.frames import Headers

__all__ = ["encode_response", "stream_response", "to_json"]


def to_json(value: Any) -> bytes:
    """Return a value as JSON without spaces.

    Raises:
        TypeError: If the value, or a part of it, cannot be encoded.
    """
    try:
        text = _dumps(value)
    except TypeError:
        # A key of another type, for which the standard library does not call `default`.
        text = _dumps(_with_plain_keys(value))
    return text.encode()


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_encode)


def _encode(value: Any) -> Any:
    """Convert a value of another type for JSON; its parts may need conversion, too."""
    if hasattr(value, "model_dump"):  # pydantic
        return value.model_dump(mode="json", by_alias=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if hasattr(value, "tolist"):  # arrays, tensors, and their scalars
        return value.tolist()
    for kinds, convert in _CONVERSIONS:
        if isinstance(value, kinds):
            return convert(value)
    if isinstance(value, type):
        raise TypeError(_describe_unsupported(value))
    return _encode_by_fastapi(value) if _has_fastapi() else _encode_object(value)


def _decimal(value: decimal.Decimal) -> int | float:
    exponent = value.as_tuple().exponent
    return int(value) if isinstance(exponent, int) and exponent >= 0 else float(value)


_CONVERSIONS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (enum.Enum, lambda value: value.value),
    (Mapping, dict),
    ((set, frozenset, tuple, collections.deque), list),
    (bytes, lambda value: value.decode()),
    ((datetime.date, datetime.time), lambda value: value.isoformat()),
    (datetime.timedelta, lambda value: value.total_seconds()),
    (decimal.Decimal, _decimal),
    ((uuid.UUID, pathlib.PurePath, Exception), str),
    ((ipaddress._IPAddressBase,), str),
    (re.Pattern, lambda value: value.pattern),
)


@functools.cache
def _has_fastapi() -> bool:
    return find_spec("fastapi") is not None


def _encode_by_fastapi(value: Any) -> Any:
    from fastapi.encoders import jsonable_encoder

    ours: dict[Any, Callable[[Any], Any]] = {Exception: str}
    if (numpy := sys.modules.get("numpy")) is not None:
        ours |= dict.fromkeys((numpy.ndarray, numpy.generic), lambda array: array.tolist())
    try:
        return jsonable_encoder(value, custom_encoder=ours)
    except ValueError as error:
        raise TypeError(_describe_unsupported(value)) from error


def _encode_object(value: Any) -> Any:
    try:
        return vars(value)
    except TypeError:
        raise TypeError(_describe_unsupported(value)) from None


def _describe_unsupported(value: Any) -> str:
    kind = value.__name__ if isinstance(value, type) else type(value).__name__
    return (
        f"{'The class' if isinstance(value, type) else 'A value of type'} {kind} cannot be sent as JSON: return text, "
        "bytes, numbers, lists, dicts, or a starlette Response."
    )


def _with_plain_keys(value: Any) -> Any:
    """Return a value whose dictionary keys are JSON types."""
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, Mapping):
        return {_plain_key(key): _with_plain_keys(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_plain_keys(each) for each in value]
    return _with_plain_keys(_encode(value))


def _plain_key(key: Any) -> str | int | float | None:
    plain = _with_plain_keys(key)
    if isinstance(plain, str | int | float | None):
        return plain
    raise TypeError(f"A key of type {type(key).__name__} cannot be sent as JSON: use text or numbers.")


_TEXT = (b"content-type", b"text/plain; charset=utf-8")
_EMPTY = (b"content-type", b"text/plain")
_BYTES = (b"content-type", b"application/octet-stream")
_JSON = (b"content-type", b"application/json")


def encode_response(result: Any) -> tuple[int, Headers, bytes] | None:
    """Return the status, headers and body of a complete response, or None for a stream or an ASGI application.

    Text and bytes are sent unchanged, None as an empty text, Starlette responses with their own headers, and everything
    else as JSON.
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


def stream_response(result: Any, code: UserCode) -> Any:
    """Return a stream as an ASGI application: a response itself, or a generator whose items are parts of the body."""
    if callable(result):
        return result
    from starlette.responses import StreamingResponse

    async def parts() -> Any:
        async for item in code.items(result):
            yield item if isinstance(item, str | bytes) else to_json(item)

    return StreamingResponse(parts(), media_type="text/plain")
