"""A debugger inside a worker process, operated from the user's terminal.

`set_trace` in a task or actor stops it, listens on a socket in the session's folder and leaves a note
beside it; `skate debug` lists the notes (`breakpoints`) and connects the terminal to one (`attach`). In the
driver, and on the inline engine everywhere, `set_trace` is plain pdb.
"""

from __future__ import annotations

import contextlib
import json
import os
import pdb
import secrets
import selectors
import shutil
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Final

from skate.util import _session

__all__ = ["Breakpoint", "attach", "breakpoints", "post_mortem", "set_trace"]

_SUFFIX: Final = ".json"
# The kernel takes no longer paths for sockets: 108 bytes on Linux, 104 on macOS.
_LONGEST_SOCKET_PATH: Final = 100


@dataclass(frozen=True)
class Breakpoint:
    """A place where a worker has stopped and waits for a debugger.

    Attributes:
        id: Names the breakpoint.
        pid: The worker process.
        file: The source file, with `line` and `function`.
        line: The line that runs next.
        function: The function it stands in.
        since: When it stopped, in seconds since the epoch.
        reason: Why: ``set_trace()``, or the exception for a post-mortem.
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


def set_trace(breakpoint_uuid: str | None = None) -> None:
    """Stop here and let the user look around.

    In a worker it waits until somebody attaches with ``skate debug``; then the usual pdb commands work.
    Disconnecting lets the worker run on.

    Args:
        breakpoint_uuid: An id for the breakpoint; by default a new one.
    """
    frame = sys._getframe(1)
    folder = _session.worker_folder()
    if folder is None:
        pdb.Pdb().set_trace(frame)
        return
    connection = _wait_for_debugger(folder, frame, frame.f_lineno, "set_trace()", breakpoint_uuid)
    _RemotePdb(connection).set_trace(frame)


def post_mortem(trace: TracebackType | None = None) -> None:
    """Look at the place where an exception was raised; by default the one that is being handled.

    Args:
        trace: The traceback to look at.

    Raises:
        ValueError: If there is none.
    """
    trace = trace or sys.exc_info()[2]
    if trace is None:
        raise ValueError(
            "post_mortem needs a traceback: call it in an except block, or pass error.__traceback__."
        )
    folder = _session.worker_folder()
    if folder is None:
        pdb.post_mortem(trace)
        return
    *_, (frame, line) = traceback.walk_tb(trace)
    error = sys.exc_info()[1]
    reason = "post-mortem" if error is None else traceback.format_exception_only(error)[-1].strip()
    debugger = _RemotePdb(_wait_for_debugger(folder, frame, line, reason, None))
    debugger.reset()
    debugger.interaction(None, trace)
    debugger.detach()


def breakpoints(session_dir: str | os.PathLike[str]) -> list[Breakpoint]:
    """Return where workers of a session have stopped, the longest waiting first.

    Args:
        session_dir: The folder of the session.
    """
    found = []
    for path in Path(session_dir, "debug").glob(f"*{_SUFFIX}"):
        try:
            stop = Breakpoint(**json.loads(path.read_text()))
            os.kill(stop.pid, 0)
        except FileNotFoundError:
            continue  # somebody has attached to it meanwhile
        except ProcessLookupError:
            path.unlink(missing_ok=True)  # the worker was killed while it waited
            continue
        found.append(stop)
    return sorted(found, key=lambda stop: stop.since)


def attach(stop: Breakpoint, stdin: IO[str] | None = None, stdout: IO[str] | None = None) -> None:
    """Connect a terminal to a breakpoint until the worker runs on.

    Args:
        stop: One of `breakpoints`.
        stdin: Where commands come from; its end disconnects. By default the standard input.
        stdout: Where the debugger's words go; by default the standard output.

    Raises:
        ConnectionError: If the worker has ended or somebody else has attached to it.
    """
    stdin = sys.stdin if stdin is None else stdin
    stdout = sys.stdout if stdout is None else stdout
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.socket(socket.AF_UNIX))
        try:
            connection.connect(stop.address)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise ConnectionError(f"Nobody waits at {stop} any more.") from error
        selector = stack.enter_context(selectors.DefaultSelector())
        selector.register(connection, selectors.EVENT_READ)
        selector.register(stdin, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is stdin:
                    # Not stdin.readline(): lines that it read ahead would not wake us again.
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


def _wait_for_debugger(
    folder: str, frame: FrameType, line: int, reason: str, id: str | None
) -> socket.socket:
    """Leave a note in the session's folder, and wait until somebody connects."""
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
        sys.stderr.write(f"Stopped at {stop}. Attach with: skate debug\n")
        sys.stderr.flush()
        try:
            return listener.accept()[0]
        finally:
            note.unlink(missing_ok=True)


@contextlib.contextmanager
def _socket_path(folder: Path, id: str) -> Iterator[str]:
    """Give a path for a socket, in `folder` unless that is too long, and clean up after it."""
    path = folder / f"{id}.sock"
    elsewhere = None
    if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
        elsewhere = tempfile.mkdtemp(prefix="skate-debug-", dir="/tmp")  # short everywhere, unlike TMPDIR
        path = Path(elsewhere, "sock")
    try:
        yield str(path)
    finally:
        path.unlink(missing_ok=True)
        if elsewhere is not None:
            shutil.rmtree(elsewhere)


class _RemotePdb(pdb.Pdb):
    """pdb whose terminal is at the other end of a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        # Two files: one for both would forget what it has read ahead whenever it is written to.
        self._streams = [connection.makefile(mode, encoding="utf-8", errors="replace") for mode in ("r", "w")]
        super().__init__(stdin=self._streams[0], stdout=self._streams[1], nosigint=True, readrc=False)
        self.use_rawinput = False

    def interaction(self, frame: FrameType | None, tb_or_exc: TracebackType | None) -> None:
        try:
            super().interaction(frame, tb_or_exc)
        except (OSError, ValueError):
            # The user's terminal is gone. Their program must not suffer from it.
            self._run_on()

    def do_continue(self, arg: str) -> bool | None:
        """Run on, and hang up unless there are other breakpoints to stop at."""
        stop = super().do_continue(arg)
        if not self.get_all_breaks():
            self.detach()
        return stop

    do_c = do_cont = do_continue

    def do_quit(self, arg: str) -> bool | None:
        """End the task with an error, and hang up."""
        stop = super().do_quit(arg)
        self.detach()
        return stop

    do_q = do_exit = do_quit

    def do_EOF(self, arg: str) -> bool | None:  # noqa: N802 (cmd's name)
        """Run on when the user disconnects, instead of ending the task as plain pdb does."""
        self._run_on()
        return True

    def _run_on(self) -> None:
        self.clear_all_breaks()
        self.set_continue()
        self.detach()

    def detach(self) -> None:
        """Hang up."""
        for stream in self._streams:
            with contextlib.suppress(OSError):
                stream.close()  # flushes, to a terminal that may be gone
        self._connection.close()
