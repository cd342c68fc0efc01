"""Checks of a deployment's options, which raise the ValueError that options of Ray Serve raise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn

from skate.air import _arguments as arguments


def whole(name: str, value: Any, *, low: int, high: int | None = None, must: str = "") -> int:
    """Return `value` as an integer within bounds, or raise pydantic's ValidationError."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        return arguments.whole(name, value, low=low, high=high, must=must)
    except (TypeError, ValueError) as error:
        _refuse(name, value, str(error))


def seconds(name: str, value: Any, *, above_zero: bool = False) -> float:
    """Return `value` as a finite number of seconds, or raise pydantic's ValidationError."""
    number = real(name, value, f"a {'positive' if above_zero else 'non-negative'} number of seconds")
    if number < 0 or (above_zero and number == 0):
        least = "a positive" if above_zero else "a non-negative"
        refuse(name, f"{least} number of seconds", value)
    return number


def real(name: str, value: Any, must: str = "a finite number") -> float:
    """Return `value` as a finite number, or raise pydantic's ValidationError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        refuse(name, must, value)
    return float(value)


def model(name: str, kind: Any, value: Any) -> Any:
    """Return an option that is a model, made of a dictionary if it is one; None stays None.

    Args:
        name: The option.
        kind: The class of the model.
        value: What was given.
    """
    if value is None or isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        article = "an" if kind.__name__[0] in "AEIOUH" else "a"
        refuse(name, f"{article} {kind.__name__}, a dictionary of its fields or None", value)
    return kind._validated(value, f"{name} ({kind.__name__})")


def refuse(name: str, must: str, value: Any) -> NoReturn:
    """Raise pydantic's ValidationError for an option that must be something else."""
    _refuse(name, value, f"`{name}` must be {must}, got {arguments.shown(value)}.")


def _refuse(name: str, value: Any, message: str) -> NoReturn:
    # Imported here: most programs never get to see it, and pydantic takes longer to import than all of Serve.
    from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

    problem = PydanticCustomError("deployment_option", message)
    raise ValidationError.from_exception_data(
        "options", [InitErrorDetails(type=problem, loc=(name,), input=value)], hide_input=True
    )
