"""What goes wrong with a file, with its name."""

from __future__ import annotations

from typing import Any


class FileReadError(ValueError):
    """Report a file that could not be read; `__cause__` is what the reader said.

    Args:
        kind: What was expected: `CSV`, `Parquet`.
        path: The file.
        reason: What the reader said.
        hint: What to do, if that is known.
    """

    def __init__(self, kind: str, path: str, reason: str, hint: str = "") -> None:
        super().__init__(kind, path, reason, hint)
        self.kind = kind
        self.path = path
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        end = f". {self.hint}" if self.hint else ""
        return f"Failed to read {self.kind} file {self.path}: {self.reason}{end}"


def named(error: Exception, kind: str, path: str) -> Exception:
    """Return an error that names the file, to be raised from the one that does not.

    Errors of the system keep their class, so that a missing file is still a `FileNotFoundError`.
    """
    if isinstance(error, FileReadError):
        return error
    if isinstance(error, OSError):
        if path in str(error):
            return error
        made: Any = type(error)(f"Failed to read {kind} file {path}: {error}")
        made.errno = error.errno
        return made  # type: ignore[no-any-return]
    if isinstance(error, ValueError | EOFError | NotImplementedError):
        return FileReadError(kind, path, str(error) or type(error).__name__)
    error.add_note(f"while reading {kind} file {path}")
    return error
