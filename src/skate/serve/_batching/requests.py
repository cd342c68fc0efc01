"""The requests behind a batch, as code inside the batched function sees them."""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from typing import Any

from skate.serve import context

_requests: contextvars.ContextVar[tuple[Any, ...]] = contextvars.ContextVar("skate_serve_batch", default=())


def batch_requests() -> tuple[Any, ...]:
    """Return the requests that the running batch answers; none outside of a batch."""
    return _requests.get()


def enter_batch(requests: Sequence[Any]) -> None:
    """Let the current context, that of a batch's first caller, be that of the whole batch.

    It is then of no single request: what the batched function calls must not carry the id of one of its requests,
    nor be cancelled with it.
    """
    _requests.set(tuple(requests))
    context._request.set(None)
