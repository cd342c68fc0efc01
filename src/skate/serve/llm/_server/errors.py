"""Errors of engines and requests as responses."""

from __future__ import annotations

import logging

from skate.llm import EngineDeadError
from skate.serve.llm._protocol.base import ErrorResponse, RequestError

__all__ = ["as_error_response"]

logger = logging.getLogger("skate.serve")


def as_error_response(error: Exception, method: str) -> ErrorResponse:
    """Return the response for an error.

    Args:
        error: The error.
        method: The method that was called, for the log.
    """
    if isinstance(error, RequestError):
        return error.response
    if isinstance(error, ValueError):  # the engine's word for a request that can never run
        return RequestError(str(error)).response
    if isinstance(error, EngineDeadError):
        return RequestError(
            f"The engine has failed: {error}", 503, code="engine_dead", retry_after=5
        ).response
    logger.error("A request to %s failed.", method, exc_info=error)
    return RequestError("The server has failed. Its log says why.", 500).response
