"""Starting processes and threads near a limit: retries with backoff until a deadline, then an error with the limit.

`fork` and `pthread_create` fail with EAGAIN at a limit on the number of processes, and with ENOMEM when the kernel
has no memory for another one. Both may pass as other processes end.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    import threading  # slow to import for a starting node

FIRST_BACKOFF = 0.05  # seconds before the second attempt; the backoff doubles after each
LONGEST_BACKOFF = 1.0
RETRY_SECONDS = 10.0  # seconds from the first attempt to the deadline

_CGROUP = "/sys/fs/cgroup"

T = TypeVar("T")


class Limit(NamedTuple):
    """A limit on processes and threads, and its current usage."""

    name: str
    most: int
    used: int | None = None  # None if counting would cost too much

    def __str__(self) -> str:
        used = "" if self.used is None else f", {self.used} in use"
        return f"{self.name} = {self.most}{used}"


def is_refusal(error: BaseException) -> bool:
    """Return whether the kernel refused to start a process or a thread, which may be temporary."""
    return isinstance(error, OSError) and error.errno in (errno.EAGAIN, errno.ENOMEM)


def retry_with_deadline(start: Callable[[], T]) -> T:
    """Call `start`, which starts a process, and retry with backoff while the kernel refuses.

    Raises:
        OSError: The kernel still refuses at the deadline, `RETRY_SECONDS` after the first attempt; the text names
            the limits.
    """
    deadline = time.monotonic() + RETRY_SECONDS
    backoff = FIRST_BACKOFF
    while True:
        try:
            return start()
        except OSError as error:
            if not is_refusal(error):
                raise
            if time.monotonic() >= deadline:
                raise OSError(error.errno, explain(error.errno or 0)) from error
        time.sleep(backoff)
        backoff = min(2 * backoff, LONGEST_BACKOFF)


def start_thread(thread: threading.Thread) -> None:
    """Start a thread.

    Raises:
        OSError: The system allows no further thread; the text names the limits.
    """
    try:
        thread.start()
    except RuntimeError as error:  # Python only says "can't start new thread"
        raise OSError(errno.EAGAIN, explain(errno.EAGAIN)) from error


def explain(number: int) -> str:
    """Return why no process could be started, from the error number of `fork`, and the remedy."""
    if number == errno.ENOMEM:
        return (
            "The kernel has no memory for another process (ENOMEM). Free some memory or raise the limit of the "
            "control group, run fewer actors and tasks at once, or allow overcommitment (vm.overcommit_memory)."
        )
    if number != errno.EAGAIN:
        return f"The system did not start a process: {os.strerror(number)} ({errno.errorcode.get(number, number)})."
    limits = [*_control_groups(), *_system()]
    reached = [limit for limit in limits if limit.used is not None and limit.used >= limit.most]
    listed = "; ".join(map(str, reached or limits)) or "unknown"
    verb = "is reached" if len(reached) == 1 else "may be reached"
    return (
        f"The system allows no further process or thread (EAGAIN). The limit that {verb}: {listed}. Raise it, or run "
        "fewer actors and tasks at once (num_cpus)."
    )


def _control_groups() -> list[Limit]:
    """Return the limits of the control groups of this process, from the innermost to the outermost."""
    found = []
    for folder in _folders():
        most, used = _number(f"{folder}/pids.max"), _number(f"{folder}/pids.current")
        if most is not None:
            found.append(Limit(f"{folder}/pids.max", most, used))
    return found


def _folders() -> list[str]:
    folders: dict[str, None] = {}
    for line in _read("/proc/self/cgroup").splitlines():
        _, kinds, path = line.split(":", 2)
        if kinds and "pids" not in kinds.split(","):
            continue
        root = f"{_CGROUP}/pids" if kinds else _CGROUP
        while path.strip("/"):
            folders[root + path] = None
            path = os.path.dirname(path)
        folders[root] = None  # all that is visible inside a container
    return list(folders)


def _system() -> list[Limit]:
    """Return the limits of this user and of the kernel."""
    import resource

    found = []
    most, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if most != resource.RLIM_INFINITY and os.geteuid() != 0:  # it does not apply to root
        found.append(Limit(f"RLIMIT_NPROC of user {os.getuid()} (ulimit -u)", most, _threads_of(os.getuid())))
    for name in ("threads-max", "pid_max"):
        value = _number(f"/proc/sys/kernel/{name}")
        if value is not None:
            found.append(Limit(f"kernel.{name}", value))
    return found


def _threads_of(user: int) -> int | None:
    """Return the number of threads of a user, in all visible processes; None if the system does not show them."""
    count = 0
    if not os.path.isdir("/proc"):  # macOS
        return None
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                if os.stat(f"/proc/{name}").st_uid == user:
                    count += len(os.listdir(f"/proc/{name}/task"))
            except OSError:  # it has just ended
                continue
    return count


def _number(path: str) -> int | None:
    text = _read(path)
    return int(text) if text.isdecimal() else None  # "max", or no such file


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
