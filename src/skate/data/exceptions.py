"""Exceptions of datasets."""

from __future__ import annotations

from typing import Any

__all__ = ["FileReadError", "RayDataUserCodeException", "ResumeError", "SystemException", "UserCodeException"]


class UserCodeException(Exception):
    """A user-defined function of a dataset has failed.

    The exception is also an instance of the class that the function raised, so that `except ValueError` works.
    """


RayDataUserCodeException = UserCodeException


class SystemException(Exception):
    """Code other than the user's has failed."""


class ResumeError(ValueError):
    """A write with `resume=True` cannot be resumed; the message gives the reason and the remedy."""


class FileReadError(ValueError):
    """Report a file that could not be read; `__cause__` is the error of the reader.

    Args:
        kind: The expected format: `CSV`, `Parquet`.
        path: The file.
        reason: The message of the reader.
        hint: The remedy, if known.
    """

    def __init__(self, kind: str, path: str, reason: str, hint: str = "") -> None:
        end = f". {hint}" if hint else ""
        super().__init__(f"Failed to read {kind} file {path}: {reason}{end}")
        self.kind = kind
        self.path = path
        self.reason = reason
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.kind, self.path, self.reason, self.hint)


def user_error(error: Exception) -> UserCodeException:
    """Return an error of the class that user code raised, marked as user code."""
    if isinstance(error, UserCodeException):
        return error
    made = _combine(type(error)).__new__(_combine(type(error)), *error.args)
    made.args = error.args
    made.__dict__.update(error.__dict__)
    made._original = error
    made.__cause__ = error.__cause__
    made.__suppress_context__ = True
    return made.with_traceback(error.__traceback__)  # type: ignore[no-any-return]


_made: dict[type[Exception], Any] = {}


def _combine(cls: type[Exception]) -> Any:
    """Return the class that combines this class with `UserCodeException`."""
    if cls in _made:
        return _made[cls]

    def reduced(self: Any) -> tuple[Any, ...]:
        return user_error, (self._original,)

    def shown(self: Any) -> str:
        return str(self._original)

    members = {"__reduce__": reduced, "__str__": shown, "__module__": cls.__module__, "__doc__": cls.__doc__}
    _made[cls] = type(cls.__name__, (UserCodeException, cls), members)
    return _made[cls]
