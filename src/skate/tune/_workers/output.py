"""The output of a trial, copied to files in its folder."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from typing import IO, Any, TextIO

Files = tuple[str | None, str | None]


def log_files(log_to_file: Any) -> Files | None:
    """Return the names of the files for the output and the errors of a trial; None to write no files.

    Args:
        log_to_file: `RunConfig.log_to_file`: whether to write `stdout` and `stderr`, the name of one file for both, or
            the names of two.

    Raises:
        ValueError: It has another type.
    """
    if not log_to_file:
        return None
    if log_to_file is True:
        return "stdout", "stderr"
    if isinstance(log_to_file, str):
        return log_to_file, log_to_file
    if isinstance(log_to_file, list | tuple) and len(log_to_file) == 2:
        return log_to_file[0], log_to_file[1]
    raise ValueError(
        f"`log_to_file` must be True, False, the name of a file or two names, not {log_to_file!r}."
    )


class Tee:
    """A stream that writes to two others, unless they are closed. Other attributes are those of the first stream.

    Args:
        stream1: The first stream.
        stream2: The second stream.
    """

    def __init__(self, stream1: IO[str], stream2: IO[str]) -> None:
        self.stream1, self.stream2 = stream1, stream2
        self._is_writing = False

    def write(self, text: str) -> int:
        """Write text to both streams, and return its length."""
        if not self._is_writing:  # else a stream writes to this one in turn
            self._is_writing = True
            try:
                self._call("write", text)
            finally:
                self._is_writing = False
        return len(text)

    def flush(self) -> None:
        """Flush both streams."""
        self._call("flush")

    def _call(self, method: str, *args: Any) -> None:
        for stream in (self.stream1, self.stream2):
            with suppress(ValueError):  # it is closed
                getattr(stream, method)(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream1, name)


class TrialOutput:
    """Copies the output and the log of this process to the files of a trial until it is closed.

    Args:
        folder: The trial's folder.
        files: The names of the files for the output and the errors.
    """

    def __init__(self, folder: str, files: Files) -> None:
        self._exits = ExitStack()
        opened: dict[str, TextIO] = {}
        for name in dict.fromkeys(each for each in files if each is not None):
            file = open(os.path.join(folder, name), "a", buffering=1, encoding="utf-8")  # noqa: SIM115  # closed below
            opened[name] = self._exits.enter_context(file)
        output, errors = files
        if output is not None:
            self._exits.enter_context(redirect_stdout(Tee(sys.stdout, opened[output])))
        if errors is not None:
            self._exits.enter_context(redirect_stderr(Tee(sys.stderr, opened[errors])))
            handler = logging.StreamHandler(opened[errors])
            ours = logging.getLogger("skate")
            if ours.level == logging.NOTSET:  # in workers; a driver logs at this level
                ours.setLevel(logging.INFO)
                self._exits.callback(ours.setLevel, logging.NOTSET)
            for logger in (logging.getLogger(), *(() if ours.propagate else (ours,))):
                logger.addHandler(handler)
                self._exits.callback(logger.removeHandler, handler)

    def close(self) -> None:
        """Stop writing to the files."""
        self._exits.close()
