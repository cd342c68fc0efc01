"""What imports may leave behind in a process that workers are forked from, and what each fork has to renew.

A fork has one thread, and shares the descriptors and the state of its parent. A process that has imported modules for
other processes is used only if the imports have left nothing that forks could not use, or would all have alike.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import Any

_TASKS = "/proc/self/task"
_FORK_SAFE_THREADS = ("jemalloc_bg_thd",)  # of Arrow's allocator, which starts them again in a fork
_DESCRIPTORS = "/proc/self/fd"


class ForkCheck:
    """Remembers a process as it is before imports, and finds what makes forks unsafe after them."""

    def __init__(self) -> None:
        self._handlers = _signal_handlers()
        self._descriptors = _open_descriptors()

    def why_unsafe(self) -> str:
        """Return what the imports have left behind, empty if the process may be forked.

        Libraries such as OpenBLAS end their threads when the process forks, and start them again where they are
        needed: only threads that are left after a fork count.

        Raises:
            OSError: The system refused to fork.
        """
        probe = os.fork()
        if probe == 0:
            os._exit(0)
        os.waitpid(probe, 0)
        if _has_threads():
            return "threads"
        if _has_children():
            return "child processes"
        if _open_descriptors() != self._descriptors:
            return "open files"
        if _signal_handlers() != self._handlers:
            return "signal handlers"
        if _own_generators():
            return "random number generators, which would return the same numbers in all workers"
        return ""


def renew_random_state() -> None:
    """Seed NumPy's global random numbers, which a fork would otherwise share; Python's own are seeded by Python."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def _signal_handlers() -> list[Any]:
    return [signal.getsignal(number) for number in sorted(signal.valid_signals())]


def _open_descriptors() -> dict[str, str]:
    found = {}
    for name in os.listdir(_DESCRIPTORS):
        try:
            found[name] = os.readlink(f"{_DESCRIPTORS}/{name}")
        except OSError:  # the descriptor that listed the folder
            continue
    return found


def _has_threads() -> bool:
    """Return whether another thread than this one and those of an allocator is running."""
    names = []
    for task in os.listdir(_TASKS):
        try:
            with open(f"{_TASKS}/{task}/comm", encoding="utf-8", errors="replace") as file:
                names.append(file.read().strip())
        except OSError:  # it has just ended
            continue
    return len([name for name in names if name not in _FORK_SAFE_THREADS]) > 1


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _own_generators() -> bool:
    """Return whether a module has seeded a generator of its own."""
    import random  # here, because this module is a part of the start of every node

    numpy_random = sys.modules.get("numpy.random")
    kinds: tuple[type, ...] = (random.Random,)
    names = getattr(sys.modules.get("tempfile"), "_name_sequence", None)
    shared: list[Any] = [getattr(random, "_inst", None), getattr(names, "_rng", None)]  # renewed by Python
    if numpy_random is not None:
        kinds = (random.Random, numpy_random.Generator, numpy_random.RandomState)
        shared.append(numpy_random.mtrand._rand)
    return any(
        issubclass(type(each), kinds)  # not isinstance, which asks lazy objects for their class
        and not issubclass(type(each), random.SystemRandom)
        and not any(each is one for one in shared)
        for each in gc.get_objects()
    )
