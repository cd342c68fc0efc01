"""Errors about ended processes: their identity, exit, likely cause, and last output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skate._base.errors.root import RayError

if TYPE_CHECKING:
    from collections.abc import Sequence

# The usual cause of a signal, for users.
_SIGNAL_HINTS = {
    "SIGKILL": "something killed it: often the kernel's out-of-memory killer, a container limit or kill -9",
    "SIGSEGV": "native code read or wrote memory it does not own (a C extension, or a mismatched library)",
    "SIGBUS": "native code accessed memory that does not exist (is /dev/shm or the disk full?)",
    "SIGABRT": "native code called abort() (a failed check in a C or C++ library)",
    "SIGILL": "a library was built for a processor with more instructions than this one",
    "SIGFPE": "native code divided by zero",
    "SIGTERM": "it was asked to stop (kill, a batch system, a shutdown)",
    "SIGINT": "it was interrupted (Ctrl-C)",
    "SIGXCPU": "it used up its CPU time limit",
}


def signal_name(number: int) -> str:
    """Return the name of a signal, as in ``SIGKILL``; an unknown number stays a number."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def likely_cause_of(exit_code: int | None, signal: int | None) -> str | None:
    """Return the likely cause of an exit code or signal."""
    if signal is None and exit_code is not None and exit_code > 128:
        # Shells and containers report "ended by signal n" as 128 + n.
        signal = exit_code - 128
    if signal is not None:
        return _SIGNAL_HINTS.get(signal_name(signal))
    if exit_code == 0:
        return "the code called sys.exit(), os._exit(0) or returned from the interpreter"
    if exit_code is not None:
        return "the code called sys.exit() or os._exit(), or the interpreter failed to start"
    return None


class ProcessDeath:
    """The facts about the end of a process, mixed into the errors that report one."""

    pid: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    likely_cause: str | None = None
    log_lines: tuple[str, ...] = ()
    task_name: str | None = None

    def _set_facts(
        self,
        *,
        pid: int | None,
        exit_code: int | None,
        signal: int | None,
        likely_cause: str | None,
        log_lines: Sequence[str],
        task_name: str | None,
    ) -> None:
        if signal is None and exit_code is not None and exit_code < 0:
            # subprocess and multiprocessing report "ended by signal n" as -n.
            signal = -exit_code
            exit_code = None
        self.pid = pid
        self.exit_code = exit_code
        self.signal = signal
        self.likely_cause = likely_cause or likely_cause_of(exit_code, signal)
        self.log_lines = tuple(line.rstrip("\n") for line in log_lines)
        self.task_name = task_name

    def _facts_text(self) -> str:
        lines = []
        if self.task_name:
            lines.append(f"  while running: {self.task_name}")
        if self.pid is not None:
            lines.append(f"  process: pid={self.pid}")
        if self.signal is not None:
            lines.append(f"  ended by: {signal_name(self.signal)} (signal {self.signal})")
        elif self.exit_code is not None:
            lines.append(f"  ended by: exit code {self.exit_code}")
        if self.likely_cause:
            lines.append(f"  likely cause: {self.likely_cause}")
        if self.log_lines:
            lines.append("  last lines of its log:")
            lines.extend(f"    {line}" for line in self.log_lines)
        return "".join("\n" + line for line in lines)


class WorkerCrashedError(ProcessDeath, RayError):
    """Report that the worker process died while it ran the task.

    Args:
        message: What happened; a general sentence when left out.
        pid: Process id of the worker.
        exit_code: Its exit code; a negative one means a signal, as in ``subprocess``.
        signal: The signal that ended it.
        likely_cause: Why it ended, in words; guessed from the exit code and signal when left out.
        log_lines: The last lines the process wrote.
        task_name: The task it was running.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        pid: int | None = None,
        exit_code: int | None = None,
        signal: int | None = None,
        likely_cause: str | None = None,
        log_lines: Sequence[str] = (),
        task_name: str | None = None,
    ) -> None:
        super().__init__(*(() if message is None else (message,)))
        self.message = message
        self._set_facts(
            pid=pid,
            exit_code=exit_code,
            signal=signal,
            likely_cause=likely_cause,
            log_lines=log_lines,
            task_name=task_name,
        )

    def __str__(self) -> str:
        head = self.message or "The worker died unexpectedly while executing this task."
        return head + self._facts_text()


class OutOfMemoryError(ProcessDeath, RayError):
    """Report that a worker was stopped because memory ran out.

    Takes the same keyword fields as [`WorkerCrashedError`][skate.exceptions.WorkerCrashedError].
    """

    def __init__(
        self,
        message: str = "The worker was stopped because the machine ran out of memory.",
        *,
        pid: int | None = None,
        exit_code: int | None = None,
        signal: int | None = None,
        likely_cause: str | None = None,
        log_lines: Sequence[str] = (),
        task_name: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self._set_facts(
            pid=pid,
            exit_code=exit_code,
            signal=signal,
            likely_cause=likely_cause,
            log_lines=log_lines,
            task_name=task_name,
        )

    def __str__(self) -> str:
        return self.message + self._facts_text()


class NodeDiedError(RayError):
    """Report that the node process, which schedules all work, is gone."""

    def __init__(self, message: str = "The node process died.") -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class LocalRayletDiedError(RayError):
    """Report that the scheduler of a task died before the task finished."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else "The scheduler process died before this task finished."
