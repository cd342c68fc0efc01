"""Errors of readers, with the path of the file."""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from typing import Any

import pyarrow as pa

from skate.data.exceptions import FileReadError

# Decoders raise these for damaged content. An error of any other class is a bug of the reader and keeps its class.
_CONTENT_ERRORS = (
    *(ValueError, EOFError, NotImplementedError, struct.error, zlib.error, zipfile.BadZipFile),
    *(tokenize.TokenError, pa.ArrowException),
)
_DECODERS = frozenset({"PIL", "av", "fastavro", "soundfile"})


class UnreadableContentError(FileReadError, OSError):
    """Report content that Arrow cannot decode. It is also an `OSError`, because that is what Arrow raises."""


def with_path(error: Exception, kind: str, path: str) -> Exception:
    """Return an error that names the file, to be raised from the original error.

    Operating system errors keep their class, so that a missing file is still a `FileNotFoundError`.
    """
    if isinstance(error, FileReadError):
        return error
    if isinstance(error, PermissionError):
        return _same_class(
            error, f"Failed to read {kind} file {path}: {error}. Grant the user of this process read access"
        )
    if isinstance(error, OSError):
        if path in str(error):
            return error
        if type(error) is OSError and error.errno is None:
            # Operating system errors have an errno; this one comes from a decoder or an object store.
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
