"""What workers print: read from pipes, kept in log files, shown on the driver's terminal."""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, Any

from skate._engine.local import messages as m

if TYPE_CHECKING:
    from skate._engine.local.node_main import Node

LAST_LINES = 20
MARK = "\x01skate-name:"  # an actor says what it wants to be called in front of its lines


class _Pipe:
    __slots__ = ("descriptor", "error", "number", "partial")

    def __init__(self, descriptor: int, number: int, *, error: bool) -> None:
        self.descriptor = descriptor
        self.number = number
        self.error = error
        self.partial = b""


class OutputPipes:
    """The standard output and error of every worker."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._pipes: dict[int, list[_Pipe]] = {}
        self._last: dict[int, deque[str]] = {}
        self._files: dict[int, Any] = {}
        self._names: dict[int, str] = {}

    def open(self, number: int) -> list[int]:
        """Make the pipes of a new worker; return the ends to write to."""
        ends = []
        pipes = []
        for error in (False, True):
            read, write = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(read, False)
            pipe = _Pipe(read, number, error=error)
            self._node.watch(read, lambda pipe=pipe: self._read(pipe))
            pipes.append(pipe)
            ends.append(write)
        self._pipes[number] = pipes
        self._last[number] = deque(maxlen=LAST_LINES)
        return ends

    def _read(self, pipe: _Pipe) -> bool:
        try:
            data = os.read(pipe.descriptor, 1 << 16)
        except BlockingIOError:
            return False
        if not data:
            self._close_pipe(pipe)
            return False
        *lines, pipe.partial = (pipe.partial + data).split(b"\n")
        self._emit(pipe, lines)
        return True

    def _emit(self, pipe: _Pipe, raw: list[bytes]) -> None:
        if not raw:
            return
        lines = []
        for data in raw:
            line = data.decode("utf-8", "replace").rstrip("\r")
            if line.startswith(MARK):
                self._names[pipe.number] = line[len(MARK) :]
            else:
                lines.append(line)
        if not lines:
            return
        self._last[pipe.number].extend(lines)
        file = self._files.get(pipe.number)
        if file is None:
            path = os.path.join(self._node.session.logs, f"worker-{pipe.number}.log")
            file = self._files[pipe.number] = open(  # noqa: SIM115 - closed with the worker
                path, "a", buffering=1, encoding="utf-8"
            )
        file.writelines(line + "\n" for line in lines)
        self._forward(pipe, lines)

    def _forward(self, pipe: _Pipe, lines: list[str]) -> None:
        machine = self._node.machine
        peer = machine.peers.get(pipe.number)
        if peer is None:
            return
        info = machine.job_info.get(peer.job, {})
        driver = info.get("driver")
        if not driver or not info.get("log_to_driver", True):
            return
        name = self._names.get(pipe.number) or self._name_of(peer)
        machine.send(driver, m.Output(name, peer.pid, lines, pipe.error))

    @staticmethod
    def _name_of(peer: Any) -> str:
        if peer.actor is not None:
            return str(peer.actor.class_name)
        for task in peer.tasks.values():
            return str(task.template.spec.name)
        return "worker"

    def close(self, number: int) -> list[str]:
        """A worker is gone: read the rest; return its last lines."""
        for pipe in self._pipes.pop(number, []):
            self._finish(pipe)
        file = self._files.pop(number, None)
        if file is not None:
            file.close()
        self._names.pop(number, None)
        return list(self._last.pop(number, ()))

    def _finish(self, pipe: _Pipe) -> None:
        while pipe.descriptor >= 0 and self._read(pipe):
            continue
        if pipe.partial:
            rest, pipe.partial = pipe.partial, b""
            self._emit(pipe, [rest])
        self._close_pipe(pipe)

    def _close_pipe(self, pipe: _Pipe) -> None:
        if pipe.descriptor >= 0:
            self._node.unwatch(pipe.descriptor)
            os.close(pipe.descriptor)
            pipe.descriptor = -1

    def drain(self) -> None:
        """Read what is left of everybody's output."""
        for number in list(self._pipes):
            self.close(number)
        self._node._act()
