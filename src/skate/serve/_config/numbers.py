"""Checks of numbers among a deployment's options."""

from __future__ import annotations

import math
from typing import Any, NoReturn


def whole(name: str, value: Any, *, low: int, high: int | None = None) -> int:
    """Return `value` as an integer within bounds, or raise pydantic's ValidationError."""
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not is_whole:
        _refuse(name, value, f"{name} must be an integer, got {value!r}.")
    if value < low or (high is not None and value > high):
        _refuse(name, value, f"{name} must be {_range(low, high)}, got {value}.")
    return int(value)


def seconds(name: str, value: Any, *, above_zero: bool = False) -> float:
    """Return `value` as a finite number of seconds, or raise pydantic's ValidationError."""
    number = real(name, value)
    if number < 0 or (above_zero and number == 0):
        least = "above 0" if above_zero else "0 or more"
        _refuse(name, value, f"{name} must be {least} (seconds), got {value}.")
    return number


def real(name: str, value: Any) -> float:
    """Return `value` as a finite number, or raise pydantic's ValidationError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        _refuse(name, value, f"{name} must be a finite number, got {value!r}.")
    return float(value)


def _range(low: int, high: int | None) -> str:
    return f"{low} or more" if high is None else f"between {low} and {high}"


def _refuse(name: str, value: Any, message: str) -> NoReturn:
    """Raise the ValueError that options of Ray Serve raise, with our words: programs may catch it by its class."""
    # Imported here: most programs never get to see it, and pydantic takes longer to import than all of Serve.
    from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

    problem = PydanticCustomError("deployment_option", message)
    raise ValidationError.from_exception_data(
        "deployment options", [InitErrorDetails(type=problem, loc=(name,), input=value)]
    )
