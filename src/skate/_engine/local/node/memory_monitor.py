"""The memory monitor: it reads the memory usage periodically, and lists processes when the usage is too high."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from skate._base import memory
from skate._engine.common.platform import system
from skate._engine.common.process_limits import start_thread
from skate._engine.local.state.records import HOST
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from skate._engine.local.node.main import Node

LARGEST = 10  # other processes that an error may name


class MemoryMonitor:
    """Reads the memory usage in a thread; the node's loop handles excess usage."""

    def __init__(self, node: Node, threshold: float, refresh: float) -> None:
        self._node = node
        self._threshold = threshold
        self._refresh = refresh
        self._ending = threading.Event()
        self._found: memory.Usage | None = None
        self._read, self._write = system.pipe()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the monitor, unless it is disabled."""
        if self._refresh <= 0:
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
            if usage.used > self._threshold * usage.total:
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
    others: list[tuple[int, int]] = []
    for pid, group, size in system.process_memory():
        number = number_of.get(pid) or number_of.get(group)  # a worker leads a group
        if number is not None:
            sizes[number] = sizes.get(number, 0) + size
        elif size:
            others.append((pid, size))
    others = sorted(others, key=lambda each: -each[1])[:LARGEST]
    return sizes, [(f"pid {pid}, {system.command_of(pid)}", size) for pid, size in others]
