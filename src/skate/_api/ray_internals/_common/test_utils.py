"""Replaces `ray._common.test_utils`: waiting until a condition holds, which Ray's guides import."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

__all__ = ["wait_for_condition"]


def wait_for_condition(
    condition_predictor: Callable[..., Any],
    timeout: float = 10,
    retry_interval_ms: float = 100,
    raise_exceptions: bool = False,
    **kwargs: Any,
) -> None:
    """Call a function until it returns a true value.

    Args:
        condition_predictor: The function.
        timeout: Seconds to try.
        retry_interval_ms: Milliseconds between two calls.
        raise_exceptions: Raise an error of the function at once, instead of calling it again.
        **kwargs: Arguments of the function.

    Raises:
        RuntimeError: The time is over; the cause is the last error of the function.
    """
    deadline = time.monotonic() + timeout
    cause: Exception | None = None
    while True:
        try:
            if condition_predictor(**kwargs):
                return
        except Exception as error:
            if raise_exceptions:
                raise
            cause = error
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"The condition did not hold within {timeout} s. Last error: {cause!r}"
            ) from cause
        time.sleep(retry_interval_ms / 1000)
