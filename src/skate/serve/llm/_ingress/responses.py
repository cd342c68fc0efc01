"""HTTP responses: JSON, errors in OpenAI's format, and streams of events."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, NoReturn

from starlette.responses import Response

from skate.exceptions import RayError
from skate.serve.context import _batch_parts
from skate.serve.exceptions import BackPressureError, DeploymentUnavailableError, retry_after
from skate.serve.llm._protocol.base import ErrorResponse, RequestError, ResponseModel

__all__ = ["EventStream", "as_request_error", "error_response", "json_response", "raise_error"]

logger = logging.getLogger("skate.serve")

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def json_response(model: ResponseModel, status: int = 200) -> Response:
    """Return a response whose body is a model. The timing is also sent as a header."""
    headers = {}
    timing = getattr(model, "timing", None)
    if timing is not None:
        headers["server-timing"] = timing.header
    return Response(model.to_json(), status, headers, media_type="application/json")


def error_response(error: RequestError | ErrorResponse) -> Response:
    """Return the response for an error."""
    found = error.response if isinstance(error, RequestError) else error
    headers = {} if found.retry_after is None else {"retry-after": str(found.retry_after)}
    if found.status == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(found.to_json(), found.status, headers, media_type="application/json")


def raise_error(response: ErrorResponse) -> NoReturn:
    """Raise the error that a server returned."""
    info = response.error
    raise RequestError(
        info.message,
        response.status,
        param=info.param,
        code=None if info.code is None else str(info.code),
        type=info.type,
        retry_after=response.retry_after,
    )


def as_request_error(error: Exception) -> RequestError:
    """Return the error that the client receives when a call to a model's deployment fails."""
    match error:
        case RequestError():
            return error
        case BackPressureError():
            return RequestError(
                "Too many requests are waiting for the model. Try again later.",
                429,
                code="rate_limit_exceeded",
                retry_after=retry_after(error),
            )
        case DeploymentUnavailableError():
            return RequestError(
                f"The model is not available: {error}", 503, code="model_unavailable", retry_after=5
            )
        case RayError():
            logger.error("A call to a model failed.", exc_info=error)
            return RequestError(
                "The model's replica failed. Try again.", 503, code="replica_failed", retry_after=1
            )
    logger.error("A request failed.", exc_info=error)
    return RequestError("The server failed. See its log for the cause.", 500)


_STREAM_HEADERS = (
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
    (b"content-type", b"text/event-stream; charset=utf-8"),
)


class EventStream(Response):
    """A stream of server-sent events. Each event is sent as soon as it arrives, with those of other streams.

    Args:
        first: The first event.
        events: The remaining events.
        on_error: Returns the events to send when the iteration fails.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        first: str,
        events: AsyncIterator[str],
        on_error: Callable[[RequestError], str],
    ) -> None:
        self.status_code = 200
        self.background = None
        self._first = first
        self._events = events
        self._on_error = on_error
        self.raw_headers = list(_STREAM_HEADERS)

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        """Send the response. If the client disconnects, the cancellation reaches the model through its handle."""
        _batch_parts()
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self._first.encode(), "more_body": True})
        try:
            async for event in self._events:
                await send({"type": "http.response.body", "body": event.encode(), "more_body": True})
        except Exception as error:  # the status has been sent already, so the error becomes an event
            last = self._on_error(as_request_error(error))
            await send({"type": "http.response.body", "body": last.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
