"""The output of workers: read from pipes, stored in log files, sent to the driver.

A driver that does not read, for example a stopped one, delays neither the node nor the workers: beyond `MAX_BACKLOG`
its lines are only counted. Log files contain all lines.
"""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, Any

from skate._engine.local.wire import messages as m
from skate._engine.local.worker.line_writer import NAME_MARK

if TYPE_CHECKING:
    from skate._engine.local.node.main import Node

LAST_LINES = 20
READ_SIZE = 1 << 16  # bytes to read from one pipe at a time
LONGEST_LINE = 1 << 20  # bytes after which an unfinished line is shown
MAX_BACKLOG = 16 << 20  # bytes that may wait for a driver; further lines are only counted


class _Pipe:
    __slots__ = ("descriptor", "error", "name", "number", "partial")

    def __init__(self, descriptor: int, number: int, *, error: bool) -> None:
        self.descriptor = descriptor
        self.number = number
        self.error = error
        self.partial = bytearray()  # the unfinished line
        self.name = ""  # what the worker has called itself in this stream


class OutputPipes:
    """The standard output and error of all workers."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._pipes: dict[int, list[_Pipe]] = {}
        self._last: dict[int, deque[str]] = {}
        self._files: dict[int, Any] = {}
        self._unlogged: set[int] = set()  # workers whose log file is not writable
        self._dropped: dict[int, int] = {}  # driver -> lines that were not sent to it

    def open(self, number: int) -> list[int]:
        """Create the pipes of a new worker; return the write ends."""
        ends = []
        pipes = []
        for error in (False, True):
            read, write = os.pipe()
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
            data = os.read(pipe.descriptor, READ_SIZE)
        except BlockingIOError:
            return False
        if not data:
            self._close_pipe(pipe)
            return False
        end = data.rfind(b"\n")
        if end < 0:
            pipe.partial += data
            if len(pipe.partial) > LONGEST_LINE:
                self._emit_partial(pipe)
            return True
        text = bytes(pipe.partial) + data[:end]
        pipe.partial = bytearray(data[end + 1 :])
        self._emit(pipe, text)
        return True

    def _emit_partial(self, pipe: _Pipe) -> None:
        text, pipe.partial = bytes(pipe.partial), bytearray()
        self._emit(pipe, text)

    def _emit(self, pipe: _Pipe, text: bytes) -> None:
        """Store and forward lines; the last one has no newline."""
        decoded = text.decode("utf-8", "replace")
        lines = decoded.split("\n")
        if "\r" in decoded:
            lines = [line.rstrip("\r") for line in lines]
        if NAME_MARK in decoded:
            self._rename(pipe, lines)
        else:
            self._show(pipe, lines)

    def _rename(self, pipe: _Pipe, lines: list[str]) -> None:
        """Show the lines; those after a mark with the name in it."""
        begin = 0
        for index, line in enumerate(lines):
            if line.startswith(NAME_MARK):
                self._show(pipe, lines[begin:index])
                pipe.name = line.removeprefix(NAME_MARK)
                begin = index + 1
        self._show(pipe, lines[begin:])

    def _show(self, pipe: _Pipe, lines: list[str]) -> None:
        if lines:
            self._last[pipe.number].extend(lines[-LAST_LINES:])
            self._keep(pipe.number, lines)
            self._forward(pipe, lines)

    def _keep(self, number: int, lines: list[str]) -> None:
        """Append lines to the worker's log file, in one write."""
        file = self._files.get(number)
        try:
            if file is None:
                path = os.path.join(self._node.session.logs, f"worker-{number}.log")
                file = self._files[number] = open(path, "ab", buffering=0)  # noqa: SIM115 - closed with the worker
            file.write(("\n".join(lines) + "\n").encode())
        except OSError as error:
            if number not in self._unlogged:
                self._unlogged.add(number)
                self._node.machine.warn(f"Skate cannot write the log file of worker {number}: {error}.")

    def _forward(self, pipe: _Pipe, lines: list[str]) -> None:
        node = self._node
        machine = node.machine
        peer = machine.peers.get(pipe.number)
        if peer is None:
            return
        info = machine.job_info.get(peer.job, {})
        driver = info.get("driver")
        if not driver or not info.get("log_to_driver", True):
            return
        connection = node.connections.get(driver)
        if connection is not None and connection.backlog > MAX_BACKLOG:
            self._dropped[driver] = self._dropped.get(driver, 0) + len(lines)
            return
        name = pipe.name or self._name_of(peer)
        dropped = self._dropped.pop(driver, 0)
        machine.send(driver, m.Output(name, peer.pid, lines, pipe.error, dropped))

    @staticmethod
    def _name_of(peer: Any) -> str:
        if peer.actor is not None:
            return str(peer.actor.class_name)
        for task in peer.tasks.values():
            return str(task.template.spec.name)
        return "worker"

    def close(self, number: int) -> list[str]:
        """Read the rest of the output of an ended worker; return its last lines."""
        for pipe in self._pipes.pop(number, []):
            self._finish(pipe)
        file = self._files.pop(number, None)
        if file is not None:
            file.close()
        self._unlogged.discard(number)
        return list(self._last.pop(number, ()))

    def _finish(self, pipe: _Pipe) -> None:
        while pipe.descriptor >= 0 and self._read(pipe):
            continue
        if pipe.partial:
            self._emit_partial(pipe)
        self._close_pipe(pipe)

    def _close_pipe(self, pipe: _Pipe) -> None:
        if pipe.descriptor >= 0:
            self._node.unwatch(pipe.descriptor)
            os.close(pipe.descriptor)
            pipe.descriptor = -1

    def flush(self) -> None:
        """Read and send the output so far."""
        for pipes in list(self._pipes.values()):
            for pipe in pipes:
                if pipe.descriptor >= 0:
                    self._read(pipe)

    def drain(self) -> None:
        """Read and send the rest of all output."""
        for number in list(self._pipes):
            self.close(number)
        for driver, dropped in self._dropped.items():
            self._node.machine.send(driver, m.Output("", 0, [], dropped=dropped))
        self._dropped.clear()
        self._node._act()
