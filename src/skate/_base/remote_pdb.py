"""A pdb whose terminal is at the other end of a socket.

A stopped process writes a note into its session's folder and listens on a socket beside it (`wait_for_debugger`).
`breakpoints` lists the notes, and `attach` connects a terminal to one.
"""

from __future__ import annotations

import contextlib
import json
import opcode
import os
import pdb
import secrets
import selectors
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Any, Final

_SUFFIX: Final = ".json"
_ENGINE: Final = f"{__name__.partition('.')[0]}._engine."
# The kernel's limit for socket paths: 108 bytes on Linux, 104 on macOS.
_LONGEST_SOCKET_PATH: Final = 100


@dataclass(frozen=True)
class Breakpoint:
    """A location where a worker has stopped and waits for a debugger.

    Attributes:
        id: The name of the breakpoint.
        pid: The worker process.
        file: The source file, with `line` and `function`.
        line: The line that runs next.
        function: The function that contains the line.
        since: When it stopped, in seconds since the epoch.
        reason: ``set_trace()``, or the exception for a post-mortem.
        address: The path of its socket.
    """

    id: str
    pid: int
    file: str
    line: int
    function: str
    since: float
    reason: str
    address: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function} (pid {self.pid}): {self.reason}"


def breakpoints(session_dir: str | os.PathLike[str]) -> list[Breakpoint]:
    """Return the breakpoints at which workers of a session have stopped, the oldest first.

    Args:
        session_dir: The folder of the session.
    """
    found = []
    for path in Path(session_dir, "debug").glob(f"*{_SUFFIX}"):
        try:
            stop = Breakpoint(**json.loads(path.read_text()))
            os.kill(stop.pid, 0)
        except FileNotFoundError:
            continue  # a terminal has attached to it meanwhile
        except ProcessLookupError:
            path.unlink(missing_ok=True)  # the worker was killed while it waited
            continue
        found.append(stop)
    return sorted(found, key=lambda stop: stop.since)


def attach(
    stop: Breakpoint, stdin: IO[str] | None = None, stdout: IO[str] | None = None, *, until: int | None = None
) -> None:
    """Connect a terminal to a breakpoint until the worker continues.

    Args:
        stop: One of `breakpoints`.
        stdin: The source of commands; its end disconnects. By default the standard input.
        stdout: The destination of the debugger's output; by default the standard output.
        until: A descriptor that disconnects as soon as it is readable.

    Raises:
        ConnectionError: The worker has ended, or another terminal has attached to it.
    """
    stdin = sys.stdin if stdin is None else stdin
    stdout = sys.stdout if stdout is None else stdout
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.socket(socket.AF_UNIX))
        try:
            connection.connect(stop.address)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise ConnectionError(f"No process waits at {stop} any more.") from error
        selector = stack.enter_context(selectors.DefaultSelector())
        selector.register(connection, selectors.EVENT_READ)
        selector.register(stdin, selectors.EVENT_READ)
        if until is not None:
            selector.register(until, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj == until:
                    return
                if key.fileobj is stdin:
                    # Not stdin.readline(): lines that it read ahead would not make the descriptor readable again.
                    typed = os.read(stdin.fileno(), 4096)
                    if typed:
                        connection.sendall(typed)
                    else:
                        selector.unregister(stdin)
                        connection.shutdown(socket.SHUT_WR)
                else:
                    said = connection.recv(65536)
                    if not said:
                        return
                    stdout.write(said.decode("utf-8", "replace"))
                    stdout.flush()


def wait_for_debugger(
    folder: str,
    frame: FrameType,
    line: int,
    reason: str,
    id: str | None,
    announce: Callable[[Breakpoint], bool] = lambda _: False,
) -> socket.socket:
    """Write a note into the session's folder, and wait until a debugger connects.

    `announce` is called with the note; if it returns True, a terminal connects by itself.
    """
    id = id or secrets.token_hex(4)
    debug = Path(folder, "debug")
    debug.mkdir(mode=0o700, exist_ok=True)
    with _socket_path(debug, id) as address, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(1)
        code = frame.f_code
        stop = Breakpoint(
            id, os.getpid(), code.co_filename, line, code.co_qualname, time.time(), reason, address
        )
        note = debug / f"{id}{_SUFFIX}"
        draft = note.with_suffix(".new")
        draft.write_text(json.dumps(asdict(stop)))
        draft.rename(note)
        if not announce(stop):
            sys.stderr.write(f"Stopped at {stop}. Attach with: skate debug {id} --address {folder}\n")
            sys.stderr.flush()
        try:
            return listener.accept()[0]
        finally:
            note.unlink(missing_ok=True)


@contextlib.contextmanager
def _socket_path(folder: Path, id: str) -> Iterator[str]:
    """Yield a path for a socket, in `folder` unless that is too long, and remove it afterwards."""
    path = folder / f"{id}.sock"
    elsewhere = None
    if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
        # Short on every system, unlike TMPDIR.
        elsewhere = tempfile.mkdtemp(prefix="skate-debug-", dir="/tmp")
        path = Path(elsewhere, "sock")
    try:
        yield str(path)
    finally:
        path.unlink(missing_ok=True)
        if elsewhere is not None:
            shutil.rmtree(elsewhere)


class RemotePdb(pdb.Pdb):
    """A pdb whose terminal is at the other end of a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        # Two files: a single one would lose its read-ahead whenever it is written to.
        self._streams = [connection.makefile(mode, encoding="utf-8", errors="replace") for mode in ("r", "w")]
        super().__init__(stdin=self._streams[0], stdout=self._streams[1], nosigint=True, readrc=False)
        self.use_rawinput = False

    def interaction(self, frame: FrameType | None, tb_or_exc: TracebackType | None) -> None:
        try:
            super().interaction(frame, tb_or_exc)
        except (OSError, ValueError):
            # The user's terminal is gone, which must not affect the program.
            self._run_on()

    def dispatch_return(self, frame: FrameType, arg: Any) -> Any:
        """Disconnect after the last line of user code that the engine called."""
        trace = super().dispatch_return(frame, arg)
        caller = frame.f_back
        is_last = caller is None or caller.f_globals.get("__name__", "").startswith(_ENGINE)
        if is_last and not _is_suspended(frame):
            self._run_on()
        return trace

    def do_continue(self, arg: str) -> bool | None:
        """Continue, and disconnect unless there are other breakpoints."""
        stop = super().do_continue(arg)
        if not self.get_all_breaks():
            self.detach()
        return stop

    do_c = do_cont = do_continue

    def do_quit(self, arg: str) -> bool | None:
        """End the task with an error, and disconnect."""
        stop = super().do_quit(arg)
        self.detach()
        return stop

    do_q = do_exit = do_quit

    def do_EOF(self, arg: str) -> bool | None:  # noqa: N802 (cmd's name)
        """Continue when the user disconnects, instead of ending the task like plain pdb."""
        self._run_on()
        return True

    def _run_on(self) -> None:
        self.clear_all_breaks()
        self.set_continue()
        self.detach()

    def detach(self) -> None:
        """Disconnect."""
        for stream in self._streams:
            with contextlib.suppress(OSError):
                stream.close()  # flushes, to a terminal that may be gone
        self._connection.close()


def _is_suspended(frame: FrameType) -> bool:
    """Return whether a frame that yields a value is a coroutine or generator that continues later."""
    return frame.f_lasti >= 0 and opcode.opname[frame.f_code.co_code[frame.f_lasti]] == "YIELD_VALUE"
