"""Preloaded templates: processes forked from the template that have imported one set of modules.

A worker whose environment names modules to preload is forked from such a process, which has imported them once. The
template forwards requests to it, and its reports to the node. If it dies, its workers die with it, and the template
starts the requested workers without the imports; such a worker then reports the error of the import itself.

The node asks for further ones, by number: for the modules that workers of one job and environment have imported.
Those import them in the surroundings of the job, and give up if forks would then be unsafe.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import socket
from collections.abc import Callable
from typing import Any, NoReturn

from skate._engine.common.platform import system
from skate._engine.local.wire.frames import pack, unpack
from skate._engine.local.worker import surroundings
from skate._engine.local.worker.fork_safety import ForkCheck

IMPORT_TIMEOUT_S = 120  # after which the kernel ends a template that has not imported its modules

Request = dict[str, Any]
Modules = tuple[str, ...]
Key = Modules | int  # what an environment names, or the number that the node has given


class UnsafeToFork(Exception):
    """Imports have left something behind that forks cannot use, or must not share."""


def import_for_job(request: Request) -> None:
    """Import modules in the surroundings of a job.

    Raises:
        UnsafeToFork: Workers must not be forked from this process.
    """
    surroundings.adopt(request)
    check = ForkCheck()
    signal.alarm(IMPORT_TIMEOUT_S)
    for name in request["modules"]:
        importlib.import_module(name)
    signal.alarm(0)
    surroundings.keep()
    reason = check.why_unsafe()
    if reason:
        raise UnsafeToFork(
            f"workers import {request['modules'][0]} and others themselves, because the imports leave {reason}"
        )


class PreloadedTemplates:
    """The preloaded templates of a template.

    Args:
        poller: Watches their sockets.
        become: Turns a child process into a preloaded template, given its key, the request for it, and its socket.
        fork: Starts a worker from this process.
        tell: Sends a message to the node.
        message: The largest message in bytes.
    """

    def __init__(
        self,
        poller: select.poll,
        become: Callable[[Key, Request, socket.socket], NoReturn],
        fork: Callable[[Request, list[int]], None],
        tell: Callable[[bytes], None],
        message: int,
    ) -> None:
        self._poller = poller
        self._become = become
        self._fork = fork
        self._tell = tell
        self._message = message
        self._socket_of: dict[Key, socket.socket] = {}
        self._key_of: dict[int, Key] = {}
        self._waiting: dict[Key, dict[int, tuple[Request, list[int]]]] = {}
        self._workers: dict[Key, set[int]] = {}  # the pids of running workers
        self._orphans: set[int] = set()  # workers of dead templates, which are dead or about to die

    def serves(self, request: Request) -> bool:
        """Return whether a worker is to be forked from a preloaded template."""
        return request["template"] in self._socket_of or bool(request["environment"].get("preload"))

    def start(self, request: Request, descriptors: list[int]) -> None:
        """Start a worker from the preloaded template of its number, or for its modules: that is made if necessary."""
        key: Key = request["template"]
        if key not in self._socket_of:
            key = tuple(request["environment"]["preload"])
        if key not in self._socket_of:
            try:
                self._make(key, request)
            except OSError as error:  # at a limit: the node retries later
                _close(descriptors)
                self._tell(pack(["refused", request["number"], error.errno]))
                return
        self._waiting[key][request["number"]] = (request, descriptors)
        try:
            socket.send_fds(self._socket_of[key], [pack(request)], descriptors)
        except OSError:
            return  # it is dead; its socket will report this

    def make_or_drop(self, number: int, request: Request) -> None:
        """Make the preloaded template of a number, or end it and its workers if the request has no modules."""
        if request["modules"] is None:
            if number in self._socket_of:
                self._socket_of[number].shutdown(socket.SHUT_RDWR)  # it ends; its socket will report this
            return
        try:
            self._make(number, request)
        except OSError:  # at a limit
            self._tell(pack(["gone", number, 0]))

    def _make(self, key: Key, request: Request) -> None:
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
            self._become(key, request, its)
        its.close()
        self._socket_of[key] = mine
        self._key_of[mine.fileno()] = key
        self._waiting[key] = {}
        self._workers[key] = set()
        self._poller.register(mine, select.POLLIN)

    def hear(self, descriptor: int) -> bool:
        """Forward a report of a preloaded template, or take over a dead one's requests; return whether it sent one.

        The socket may have nothing to read: a new template may have the descriptor of a dead one.
        """
        key = self._key_of.get(descriptor)
        if key is None:
            return False
        try:
            data = self._socket_of[key].recv(self._message, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionResetError:  # raised once, before the last reports of a dead template
            return True
        if not data:
            self._gone(key)
            return False
        kind, first, second = unpack(data)
        if kind in ("started", "refused"):
            _, descriptors = self._waiting[key].pop(first)
            _close(descriptors)
        if kind == "started":
            self._workers[key].add(second)
        elif kind == "exited":
            self._workers[key].discard(first)
        self._tell(data)
        return True

    def has_orphaned(self, pid: int) -> bool:
        """Return whether an ended process was a worker of a dead preloaded template.

        Reads the reports first: the node must receive the start of a worker before its end.
        """
        for descriptor in list(self._key_of):
            while self.hear(descriptor):
                continue
        if pid not in self._orphans:
            return False
        self._orphans.remove(pid)
        return True

    def _gone(self, key: Key) -> None:
        sock = self._socket_of.pop(key)
        del self._key_of[sock.fileno()]
        self._poller.unregister(sock)
        sock.close()
        workers = self._workers.pop(key)
        if system.ADOPTS_ORPHANS:
            self._orphans |= workers
        else:
            self._end(workers)
        for request, descriptors in self._waiting.pop(key).values():
            self._fork(request, descriptors)
            _close(descriptors)
        if isinstance(key, int):
            self._tell(pack(["gone", key, 0]))

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
