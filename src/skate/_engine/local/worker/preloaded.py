"""Templates that have imported more than others: each is forked from the template for one set of modules.

A worker whose environment names modules to preload is forked from such a process, which has imported them once. The
template passes the request on to it, and what it reports on to the node. If it dies, its workers die with it, and what
it had not yet started is started without the imports: the worker then finds out by itself what is wrong with them.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable
from typing import Any, NoReturn

from skate._engine.local.wire.frames import pack, unpack

Request = dict[str, Any]
Modules = tuple[str, ...]


class PreloadedTemplates:
    """The warm templates of a template.

    Args:
        poller: Watches their sockets.
        become: Makes a child process a template that has imported modules: given those and its socket.
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
        self._workers: dict[Modules, set[int]] = {}  # the pids of those that run
        self._orphans: set[int] = set()  # workers of dead templates, which are dead or about to be

    def start(self, request: Request, descriptors: list[int]) -> None:
        """Have a worker started by the template for its modules, which is made if there is none."""
        modules = tuple(request["environment"]["preload"])
        if modules not in self._socket_of:
            try:
                self._make(modules)
            except OSError as error:  # at a limit: the node asks again later
                _close(descriptors)
                self._tell(pack(["refused", request["number"], error.errno]))
                return
        self._waiting[modules][request["number"]] = (request, descriptors)
        try:
            socket.send_fds(self._socket_of[modules], [pack(request)], descriptors)
        except OSError:
            return  # it is dead, and we will hear of it

    def _make(self, modules: Modules) -> None:
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
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
        """Pass on one report of a warm template, or take over its requests if it is dead; False if that was all.

        There may be nothing to read: another template may have the descriptor of one that is dead.
        """
        modules = self._modules_of.get(descriptor)
        if modules is None:
            return False
        try:
            data = self._socket_of[modules].recv(self._message, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionResetError:  # comes once, ahead of the last reports of a dead template
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
        """Return whether a process that ended was a worker of a dead warm template.

        Reads the reports first: the node has to hear of a worker's start before it hears of its end.
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
        self._orphans |= self._workers.pop(modules)
        for request, descriptors in self._waiting.pop(modules).values():
            self._fork(request, descriptors)
            _close(descriptors)

    def leave(self) -> None:
        """Let go of them, in a process that was forked from their template."""
        for sock in self._socket_of.values():
            sock.close()

    def forget(self) -> None:
        """All of them have been killed, and nothing that they were asked for is wanted any more."""
        for waiting in self._waiting.values():
            for _, descriptors in waiting.values():
                _close(descriptors)
            waiting.clear()


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
