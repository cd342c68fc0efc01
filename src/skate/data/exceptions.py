"""What goes wrong in a dataset, and whose fault it is."""

from __future__ import annotations

from typing import Any

__all__ = ["FileReadError", "RayDataUserCodeException", "ResumeError", "SystemException", "UserCodeException"]


class UserCodeException(Exception):
    """A function that the user gave to a dataset has failed.

    What is raised is of this class and of the class that the function raised, so that `except ValueError` works too.
    """


RayDataUserCodeException = UserCodeException


class SystemException(Exception):
    """Something other than the user's code has failed."""


class ResumeError(ValueError):
    """A write with `resume=True` cannot go on where another one stopped; the message says why, and what to do."""


class FileReadError(ValueError):
    """Report a file that could not be read; `__cause__` is what the reader said.

    Args:
        kind: What was expected: `CSV`, `Parquet`.
        path: The file.
        reason: What the reader said.
        hint: What to do, if that is known.
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
    """Return an error that is what user code raised, and says that it comes from user code."""
    if isinstance(error, UserCodeException):
        return error
    made = _both(type(error)).__new__(_both(type(error)), *error.args)
    made.args = error.args
    made.__dict__.update(error.__dict__)
    made._original = error
    made.__cause__ = error.__cause__
    made.__suppress_context__ = True
    return made.with_traceback(error.__traceback__)  # type: ignore[no-any-return]


_made: dict[type[Exception], Any] = {}


def _both(cls: type[Exception]) -> Any:
    """Return the class of errors that are of this class, and of user code."""
    if cls in _made:
        return _made[cls]

    def reduced(self: Any) -> tuple[Any, ...]:
        return user_error, (self._original,)

    def shown(self: Any) -> str:
        return str(self._original)

    members = {"__reduce__": reduced, "__str__": shown, "__module__": cls.__module__, "__doc__": cls.__doc__}
    _made[cls] = type(cls.__name__, (UserCodeException, cls), members)
    return _made[cls]
