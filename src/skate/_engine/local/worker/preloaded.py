"""Preloaded templates: processes forked from the template that have imported one set of modules.

A worker whose environment names modules to preload is forked from such a process, which has imported them once. The
template forwards requests to it, and its reports to the node. If it dies, its workers die with it, and the template
starts the requested workers without the imports; such a worker then reports the error of the import itself.
"""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Callable
from typing import Any, NoReturn

from skate._engine.common.platform import system
from skate._engine.local.wire.frames import pack, unpack

Request = dict[str, Any]
Modules = tuple[str, ...]


class PreloadedTemplates:
    """The preloaded templates of a template.

    Args:
        poller: Watches their sockets.
        become: Turns a child process into a preloaded template, given the modules and its socket.
        fork: Starts a worker from this process.
        tell: Sends a message to the node.
        message: The largest message in bytes.
    """

    def __init__(
        self,
        poller: select.poll,
        become: Callable[[Modules, socket.socket], NoReturn],
        fork: Callable[[Request, list[int]], None],
        tell: Callable[[bytes], None],
        message: int,
    ) -> None:
        self._poller = poller
        self._become = become
        self._fork = fork
        self._tell = tell
        self._message = message
        self._socket_of: dict[Modules, socket.socket] = {}
        self._modules_of: dict[int, Modules] = {}
        self._waiting: dict[Modules, dict[int, tuple[Request, list[int]]]] = {}
        self._workers: dict[Modules, set[int]] = {}  # the pids of running workers
        self._orphans: set[int] = set()  # workers of dead templates, which are dead or about to die

    def start(self, request: Request, descriptors: list[int]) -> None:
        """Start a worker from the preloaded template for its modules, which is created if necessary."""
        modules = tuple(request["environment"]["preload"])
        if modules not in self._socket_of:
            try:
                self._make(modules)
            except OSError as error:  # at a limit: the node retries later
                _close(descriptors)
                self._tell(pack(["refused", request["number"], error.errno]))
                return
        self._waiting[modules][request["number"]] = (request, descriptors)
        try:
            socket.send_fds(self._socket_of[modules], [pack(request)], descriptors)
        except OSError:
            return  # it is dead; its socket will report this

    def _make(self, modules: Modules) -> None:
        mine, its = system.message_pair()
        try:
            pid = os.fork()
        except OSError:
            mine.close()
            its.close()
            raise
        if pid == 0:
            mine.close()
            self.leave()
            self._become(modules, its)
        its.close()
        self._socket_of[modules] = mine
        self._modules_of[mine.fileno()] = modules
        self._waiting[modules] = {}
        self._workers[modules] = set()
        self._poller.register(mine, select.POLLIN)

    def hear(self, descriptor: int) -> bool:
        """Forward a report of a preloaded template, or take over a dead one's requests; return whether it sent one.

        The socket may have nothing to read: a new template may have the descriptor of a dead one.
        """
        modules = self._modules_of.get(descriptor)
        if modules is None:
            return False
        try:
            data = self._socket_of[modules].recv(self._message, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionResetError:  # raised once, before the last reports of a dead template
            return True
        if not data:
            self._gone(modules)
            return False
        kind, first, second = unpack(data)
        if kind in ("started", "refused"):
            _, descriptors = self._waiting[modules].pop(first)
            _close(descriptors)
        if kind == "started":
            self._workers[modules].add(second)
        elif kind == "exited":
            self._workers[modules].discard(first)
        self._tell(data)
        return True

    def has_orphaned(self, pid: int) -> bool:
        """Return whether an ended process was a worker of a dead preloaded template.

        Reads the reports first: the node must receive the start of a worker before its end.
        """
        for descriptor in list(self._modules_of):
            while self.hear(descriptor):
                continue
        if pid not in self._orphans:
            return False
        self._orphans.remove(pid)
        return True

    def _gone(self, modules: Modules) -> None:
        sock = self._socket_of.pop(modules)
        del self._modules_of[sock.fileno()]
        self._poller.unregister(sock)
        sock.close()
        workers = self._workers.pop(modules)
        if system.ADOPTS_ORPHANS:
            self._orphans |= workers
        else:
            self._end(workers)
        for request, descriptors in self._waiting.pop(modules).values():
            self._fork(request, descriptors)
            _close(descriptors)

    def _end(self, workers: set[int]) -> None:
        """Kill workers of a dead template whose end this process does not learn of, and report it."""
        for pid in workers:
            for kill in (os.killpg, os.kill):
                try:
                    kill(pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    continue  # it has ended, or led no group yet
            self._tell(pack(["orphaned", pid, -signal.SIGKILL]))

    def leave(self) -> None:
        """Close the sockets, in a process that was forked from the template."""
        for sock in self._socket_of.values():
            sock.close()

    def forget(self) -> None:
        """Drop all requests, after all preloaded templates were killed."""
        for waiting in self._waiting.values():
            for _, descriptors in waiting.values():
                _close(descriptors)
            waiting.clear()


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
