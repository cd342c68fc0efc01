"""Errors as tasks raise them, for the tests of errors."""

from __future__ import annotations

from typing import Any

from skate.exceptions import (
    RayTaskError,
)


def caught(function: Any, *args: Any, name: str | None = None, **options: Any) -> RayTaskError:
    """Run a function as a worker does: whatever it raises becomes a task error."""
    try:
        function(*args)
    except BaseException as error:
        return RayTaskError.from_exception(name or function.__name__, error, **{"pid": 1234, **options})
    raise AssertionError("it did not raise")


def divide() -> float:
    return 1 / 0


def raiser(error: BaseException) -> Any:
    def fails() -> None:
        raise error

    return fails
