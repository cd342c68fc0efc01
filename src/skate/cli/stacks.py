"""The Python stack of another process: by py-spy, or by asking it to print it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time

PATIENCE_SECONDS = 2.0
PAUSE_SECONDS = 0.05


def stack_of(pid: int, worker: int, session: str) -> str:
    """Return the stacks of a worker's threads, or why they cannot be had."""
    spy = shutil.which("py-spy")
    if spy is not None:
        done = subprocess.run([spy, "dump", "--pid", str(pid)], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout
    return _printed(pid, os.path.join(session, "logs", f"worker-{worker}.log"))


def _printed(pid: int, log: str) -> str:
    """Have the worker print its stacks, and read them from its log."""
    if not _catches(pid, signal.SIGUSR1):
        return "This process does not show its stack; install py-spy to see it."
    before = _size(log)
    os.kill(pid, signal.SIGUSR1)
    deadline = time.monotonic() + PATIENCE_SECONDS
    seen = before
    # The node copies it to the log, and nothing marks its end: it is there when no more comes.
    while time.monotonic() < deadline:
        time.sleep(PAUSE_SECONDS)
        size = _size(log)
        if size > before and size == seen:
            break
        seen = size
    if seen == before:
        return "This process did not show its stack: it may be stopped, or have closed its standard error."
    with open(log, encoding="utf-8", errors="replace") as file:
        file.seek(before)
        return file.read()


def _size(path: str) -> int:
    return os.stat(path).st_size if os.path.exists(path) else 0


def _catches(pid: int, number: int) -> bool:
    """Tell whether a process handles a signal; one that does not would die of it."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            mask = next(line.split()[1] for line in file if line.startswith("SigCgt:"))
    except (FileNotFoundError, StopIteration):
        return False
    return bool(int(mask, 16) >> (number - 1) & 1)
