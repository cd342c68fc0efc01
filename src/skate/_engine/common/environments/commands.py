"""Running installers with a time limit and the lifetime of this process; errors contain their output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from skate._base.errors import RuntimeEnvSetupError

_SHOWN_LINES = 60

# Asks the kernel to end the command when its parent dies, then becomes the command. A hook between fork and
# exec would work too, but is not safe in a process with threads.
_LEASH = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15, 0, 0, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)


class Deadline:
    """A point in time until which work must be done."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds

    def remaining(self) -> float | None:
        """Return the remaining seconds, or None without a limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())


def run_command(
    command: Sequence[str],
    *,
    what: str,
    deadline: Deadline,
    env: Mapping[str, str],
    cwd: Path | None = None,
) -> str:
    """Run a command to its end and return its output.

    Args:
        command: Program and arguments.
        what: Description of the command for errors.
        deadline: When to give up.
        env: Its environment variables.
        cwd: Its working directory.

    Raises:
        RuntimeEnvSetupError: The command could not be started, failed, or took too long.
    """
    leash = [sys.executable, "-I", "-S", "-c", _LEASH] if sys.platform == "linux" else []
    process = subprocess.Popen(
        [*leash, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=dict(env),
        cwd=cwd,
        # A separate group, so that the builds it starts end with it.
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=deadline.remaining())
    except subprocess.TimeoutExpired:
        _kill_group(process)
        output, _ = process.communicate()
        raise RuntimeEnvSetupError(
            f"{what} took longer than {deadline.seconds:g} s. Give it more time with "
            f"runtime_env['config']['setup_timeout_seconds'].\n{_describe(command, output)}"
        ) from None
    except BaseException:
        _kill_group(process)
        process.communicate()
        raise
    if process.returncode != 0:
        raise RuntimeEnvSetupError(
            f"{what} failed with exit code {process.returncode}.\n{_describe(command, output)}"
        )
    return output


def _kill_group(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # It has ended in the meantime.


def _describe(command: Sequence[str], output: str) -> str:
    lines = output.rstrip().splitlines()
    cut = [f"… ({len(lines) - _SHOWN_LINES} lines before)"] if len(lines) > _SHOWN_LINES else []
    return "\n".join([f"$ {' '.join(command)}", *cut, *lines[-_SHOWN_LINES:]])
