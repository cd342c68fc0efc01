"""What goes wrong with a file, with its name."""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from typing import Any

import pyarrow as pa

from skate.data.exceptions import FileReadError

# What decoders raise for content that is damaged; an error of any other class is the reader's own, and keeps its class.
_CONTENT_ERRORS = (
    *(ValueError, EOFError, NotImplementedError, struct.error, zlib.error, zipfile.BadZipFile),
    *(tokenize.TokenError, pa.ArrowException),
)
_DECODERS = frozenset({"PIL", "av", "fastavro", "soundfile"})


class UnreadableContentError(FileReadError, OSError):
    """Report content that Arrow could not make sense of. It is an `OSError` too, because that is what Arrow raises."""


def with_path(error: Exception, kind: str, path: str) -> Exception:
    """Return an error that names the file, to be raised from the one that does not.

    Errors of the system keep their class, so that a missing file is still a `FileNotFoundError`.
    """
    if isinstance(error, FileReadError):
        return error
    if isinstance(error, PermissionError):
        return _same_class(
            error, f"Failed to read {kind} file {path}: {error}. Let the user of this process read it"
        )
    if isinstance(error, OSError):
        if path in str(error):
            return error
        if type(error) is OSError and error.errno is None:
            # What the system says has a number; this comes from a decoder, or from a store.
            return UnreadableContentError(kind, path, str(error))
        return _same_class(error, f"Failed to read {kind} file {path}: {error}")
    if isinstance(error, _CONTENT_ERRORS) or type(error).__module__.partition(".")[0] in _DECODERS:
        return FileReadError(kind, path, str(error) or type(error).__name__)
    error.add_note(f"while reading {kind} file {path}")
    return error


def _same_class(error: OSError, message: str) -> OSError:
    made: Any = type(error)(message)
    made.errno = error.errno
    return made  # type: ignore[no-any-return]
