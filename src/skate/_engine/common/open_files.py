"""The limit of open files: raised at the start, and described when it is reached."""

from __future__ import annotations

import errno
import math
import os
import resource

# Ray's value: enough for thousands of actors, and not so many that a program which closes every possible
# descriptor before it starts another program takes seconds.
ENOUGH = 65_536
OPEN_MAX = 10_240  # what macOS allows every process; see setrlimit(2) there


def attainable_limit() -> float:
    """Return how many files this process may open after `raise_limit`."""
    soft, hard = (math.inf if n < 0 else n for n in resource.getrlimit(resource.RLIMIT_NOFILE))
    return max(soft, min(hard, ENOUGH))


def raise_limit() -> None:
    """Raise the soft limit of open files of this process up to `ENOUGH`, as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = attainable_limit()
    if 0 <= soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (int(wanted), hard))
        except (ValueError, OSError):  # macOS refuses values above a limit that it does not tell
            if soft < OPEN_MAX:
                resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_MAX, hard))


def check_room(count: int) -> None:
    """Raise OSError if this process cannot open this many more files."""
    opened: list[int] = []
    try:
        while len(opened) < count:
            opened.append(os.dup(0))
    finally:
        for descriptor in opened:
            os.close(descriptor)


def is_exhausted(error: OSError) -> bool:
    """Return whether an error means that no more files can be opened."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def describe_limit(error: OSError, process: str = "This process") -> str:
    """Describe which limit was reached, and how to raise it."""
    if error.errno == errno.ENFILE:
        return "The machine has too many open files: raise the sysctl fs.file-max."
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"{process} has too many open files: its limit is {soft:,} (`ulimit -n`), and the hard limit is {hard:,}. "
        "Close files and sockets, or raise the limit before the program starts."
    )
