"""Run one program in a process of its own and bring back its figure, and nothing of it stays behind."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from harness.footprint import Footprint, Watch

PROGRAMS = Path(__file__).resolve().parent.parent / "programs"

# The words the programs print; programs/meter.py writes the first.
FIGURE_MARK = "FIGURE "
READY_MARK = "READY"

# A program that takes longer than this is stuck.
LIMIT_SECONDS = 300.0

# How long a system may take to end its processes before we do it.
GRACE_SECONDS = 20.0

# Idle memory is read once a second until four readings agree, at most this often.
MOST_READINGS = 20

# How long to watch an idle session.
IDLE_SECONDS = 5.0

_PR_SET_CHILD_SUBREAPER = 36


class ProgramError(Exception):
    """A program ended without its figure; the message is the last thing it said."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A program with its interpreter, arguments and changes to the environment."""

    python: str
    program: str
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    keep_path: bool = False

    def line(self) -> list[str]:
        """Return the command line."""
        return [self.python, str(PROGRAMS / f"{self.program}.py"), *self.arguments]

    def variables(self) -> dict[str, str]:
        """Return the environment: ours, without what would tune a system or lead it to another session."""
        dropped = ("RAY_", "DASK_", "BENTOML_", "LIT_", "SKATE_ADDRESS", "SKATE_ENGINE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        if not self.keep_path:
            kept.pop("PYTHONPATH", None)
        return kept | self.environment


def adopt_orphans() -> None:
    """Make processes that detach themselves our children, so that they are counted and ended (Linux only).

    Changes the calling process for good: call it from a main program, not from a test.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def figure(command: Command) -> float:
    """Run a program that measures itself and return what it reports.

    Raises:
        ProgramError: It failed, or ran for too long.
    """
    with _running(command) as (process, talk):
        output = process.stdout
        assert output is not None
        value = parse_figure(output)
        process.wait()
        if value is None or process.returncode != 0:
            raise ProgramError(last_words(talk, process.returncode))
        return value


def figures(command: Command) -> dict[str, float]:
    """Run a program that measures several systems in turn; return the figure of each.

    Raises:
        ProgramError: It failed, or ran for too long.
    """
    with _running(command) as (process, talk):
        output = process.stdout
        assert output is not None
        found = parse_figures(output)
        process.wait()
        if not found or process.returncode != 0:
            raise ProgramError(last_words(talk, process.returncode))
        return found


def startup_seconds(command: Command) -> float:
    """Return the wall time from starting the interpreter to the first task's result."""
    start = time.perf_counter()
    with _running(command) as (process, talk):
        _await_ready(process, talk)
        return time.perf_counter() - start


def idle_megabytes(command: Command) -> float:
    """Return the PSS of the program and everything it started, once it has stopped changing."""
    with _running(command) as (process, talk):
        _await_ready(process, talk)
        # Late starters, such as workers that a system prestarts, belong to the idle state.
        seen = [_tree_pss()]
        while len(seen) < MOST_READINGS and not _steady(seen):
            time.sleep(1.0)
            seen.append(_tree_pss())
        return seen[-1] / 1e6


def idle_cpu_percent(command: Command) -> float:
    """Return the CPU time of the program and everything it started, idle, in per cent of one core."""
    with _running(command) as (process, talk):
        _await_ready(process, talk)
        time.sleep(IDLE_SECONDS)  # what ends by itself has ended
        before = _tree_cpu()
        time.sleep(IDLE_SECONDS)
        return 100 * (_tree_cpu() - before) / IDLE_SECONDS


def peak_memory(command: Command) -> Footprint:
    """Run a program to its end, and return the memory of it and of everything it started, over time.

    Raises:
        ProgramError: It failed, or ran for too long.
    """
    # Blocks of shared memory that nobody has mapped at the moment are found in their folder.
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/dev/shm") as shared:
        command = dataclasses.replace(command, environment=command.environment | {"SKATE_SHMDIR": shared})
        with _running(command) as (process, talk):
            _await_ready(process, talk)
            output = process.stdout
            assert output is not None
            with Watch(Path(shared)) as footprint:
                done = parse_figure(output)
            process.wait()
            if done is None or process.returncode != 0:
                raise ProgramError(last_words(talk, process.returncode))
            return footprint


def _steady(readings: list[float]) -> bool:
    last = readings[-4:]
    return len(last) == 4 and max(last) - min(last) < 0.01 * max(last)


def parse_figure(lines: IO[str] | list[str]) -> float | None:
    """Return the last figure among a program's lines, or None; other lines are the system's talk."""
    return next(reversed(parse_figures(lines).values()), None)


def parse_figures(lines: IO[str] | list[str]) -> dict[str, float]:
    """Return the last figure of each system among a program's lines."""
    found: dict[str, float] = {}
    for line in lines:
        if line.startswith(FIGURE_MARK):
            figure = json.loads(line.removeprefix(FIGURE_MARK))
            found.pop(figure["system"], None)  # the last is to come last
            found[figure["system"]] = float(figure["value"])
    return found


def last_words(talk: IO[str], status: int | None) -> str:
    """Return the last line on standard error, which for Python names the exception."""
    if status == -signal.SIGKILL:
        return f"killed; a program may run for {LIMIT_SECONDS:g} s"
    talk.seek(0)
    lines = [line.strip() for line in talk.read().splitlines() if line.strip()]
    return f"exit status {status}: {lines[-1][:200] if lines else 'no message'}"


def _await_ready(process: subprocess.Popen[str], talk: IO[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(READY_MARK):
            return
    raise ProgramError(last_words(talk, process.wait()))


@contextlib.contextmanager
def _running(command: Command) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """Start the program; at the end close its input, wait, and see that all it started is gone."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as talk:
        process = subprocess.Popen(
            command.line(),
            env=command.variables(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=talk,
            text=True,
            start_new_session=True,
        )
        watchdog = threading.Timer(LIMIT_SECONDS, _kill, args=[process.pid])
        watchdog.start()
        try:
            yield process, talk
        except BaseException:
            _kill(process.pid)
            raise
        finally:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            # Reading to the end lets a program that still talks finish.
            for _ in process.stdout:
                pass
            process.stdout.close()
            process.wait()
            watchdog.cancel()
            _clear_up()


def _kill(pid: int) -> None:
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _clear_up() -> None:
    """Wait until the program's processes have ended, so that they take no time from the next one."""
    left = psutil.Process().children(recursive=True)
    _, left = psutil.wait_procs(left, timeout=GRACE_SECONDS)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=GRACE_SECONDS)


def _tree_pss() -> float:
    """Return the proportional set size, in bytes, of every process below this one."""
    total = 0
    for process in psutil.Process().children(recursive=True):
        try:
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        except (ProcessLookupError, FileNotFoundError):
            if sys.platform != "linux":
                raise ProgramError("PSS is read from /proc, which this system does not have") from None
            continue  # It ended while we looked.
        total += sum(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))
    return float(total)


def _tree_cpu() -> float:
    """Return the CPU seconds of every process below this one."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total
