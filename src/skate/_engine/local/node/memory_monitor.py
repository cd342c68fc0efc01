"""The memory monitor: it reads the memory usage periodically, and lists processes when the usage is too high."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from skate._base import memory
from skate._engine.common.process_limits import start_thread
from skate._engine.local.state.records import HOST
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from skate._engine.local.node.main import Node

LARGEST = 10  # other processes that an error may name
_PAGE = os.sysconf("SC_PAGE_SIZE")


class MemoryMonitor:
    """Reads the memory usage in a thread; the node's loop handles excess usage."""

    def __init__(self, node: Node, threshold: float, refresh: float) -> None:
        self._node = node
        self._threshold = threshold
        self._refresh = refresh
        self._ending = threading.Event()
        self._found: memory.Usage | None = None
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the monitor, unless it is disabled."""
        if self._refresh <= 0 or memory.usage() is None:
            return
        self._node.watch(self._read, self._collect)
        thread = threading.Thread(target=self._run, name="skate-memory", daemon=True)
        try:
            start_thread(thread)
        except OSError as error:
            sys.stderr.write(f"skate: the memory monitor is disabled. {error.strerror}\n")
            return
        self._thread = thread

    def stop(self) -> None:
        """End the thread."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(10)

    def _run(self) -> None:
        while not self._ending.wait(self._refresh):
            usage = memory.usage()
            if usage is not None and usage.used > self._threshold * usage.total:
                self._found = usage
                os.write(self._write, b"x")

    def _collect(self) -> None:
        os.read(self._read, 4096)
        usage = self._found
        if usage is None:
            return
        number_of = {peer.pid: peer.number for peer in self._node.machine.peers.values() if peer.pid}
        sizes, others = processes(number_of)
        self._node.handle_now(
            HOST, m.MemoryPressure(usage.used, usage.total, usage.where, self._threshold, sizes, others)
        )


def processes(number_of: Mapping[int, int]) -> tuple[dict[int, int], list[tuple[str, int]]]:
    """Return the memory of our processes with their descendants, by number, and the largest other processes."""
    sizes: dict[int, int] = {}
    others: list[tuple[str, int]] = []
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                group = int(file.read().rpartition(b")")[2].split()[2])
            with open(f"/proc/{name}/statm", "rb") as file:
                _, resident, shared, *_ = map(int, file.read().split())
        except (OSError, ValueError):  # it has just ended
            continue
        size = (resident - shared) * _PAGE  # shared pages belong to the object store or to files
        number = number_of.get(int(name)) or number_of.get(group)  # a worker leads a group
        if number is not None:
            sizes[number] = sizes.get(number, 0) + size
        elif size:
            others.append((name, size))
    others = sorted(others, key=lambda each: -each[1])[:LARGEST]
    return sizes, [(f"pid {pid}, {_command_of(pid)}", size) for pid, size in others]


def _command_of(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "ended"
