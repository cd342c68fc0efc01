"""Stand-in for `ray.data._internal.util`: functions that third-party datasources, datasinks and aggregations call."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from skate.air._optional import load
from skate.data._io import retrying

__all__ = ["call_with_retry", "is_null"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _check_import(obj: object, *, module: str, package: str) -> None:
    """Raise an ImportError that names the package to install, unless the module can be imported.

    Args:
        obj: The object that needs the module.
        module: Name of the module.
        package: Name of the package to install.
    """
    load(module, type(obj).__name__, package)


def call_with_retry(
    f: Callable[Parameters, Result],
    description: str,
    match: Sequence[str] | None = None,
    max_attempts: int = 10,
    max_backoff_s: float = 32,
    *args: Parameters.args,
    **kwargs: Parameters.kwargs,
) -> Result:
    """Call a function; retry while it fails with a matching error.

    Args:
        f: The function, which must be idempotent.
        description: Description of the operation, for the log.
        match: Substrings or regular expressions, one of which must occur in `ErrorName: message`; None matches
            every error.
        max_attempts: Number of calls before the error is raised.
        max_backoff_s: Maximum pause between two calls, in seconds.
        args: Positional arguments of the function.
        kwargs: Keyword arguments of the function.

    Raises:
        ValueError: `max_attempts` is less than 1.

    >>> call_with_retry(lambda: "read", "read a file", max_attempts=3)
    'read'
    """
    if max_attempts < 1:
        raise ValueError(f"`max_attempts` must be at least 1, got {max_attempts}")

    def is_transient(error: Exception) -> bool:
        if match is None:
            return True
        text = "".join(traceback.format_exception_only(error)).rstrip("\n")
        return any(_matches(pattern, text) for pattern in match)

    return retrying.call(
        lambda: f(*args, **kwargs),
        description,
        is_transient=is_transient,
        attempts=max_attempts,
        longest_pause=max_backoff_s,
    )


def is_null(value: Any) -> bool:
    """Return whether `value` is None or a floating-point NaN.

    >>> is_null(None), is_null(float("nan")), is_null(0)
    (True, True, False)
    """
    return value is None or (isinstance(value, (float, np.floating)) and bool(np.isnan(value)))


def _matches(pattern: str, text: str) -> bool:
    if pattern in text:
        return True
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return False  # plain text with brackets that does not occur
