"""Stands for `ray.data._internal.util`: the test of missing values that aggregations of users call."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["is_null"]


def is_null(value: Any) -> bool:
    """Return whether `value` is None or a floating-point NaN.

    >>> is_null(None), is_null(float("nan")), is_null(0)
    (True, True, False)
    """
    return value is None or (isinstance(value, (float, np.floating)) and bool(np.isnan(value)))
