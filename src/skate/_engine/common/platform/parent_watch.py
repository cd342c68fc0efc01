"""The end of a parent, seen in a pipe whose write end only the parent has.

A process that has called `open_pipe` passes the read end to its children: to those that it forks, and as the standard
input to those with a new interpreter. A thread of the child waits for the end of the pipe, and kills the process.
"""

from __future__ import annotations

import _thread
import errno
import os
import select
import signal

from skate._engine.common.process_limits import explain

_own: tuple[int, int] | None = None  # the pipe that the children of this process watch
_parent = -1  # the read end of the parent's pipe
# The descriptor that ends the thread when it is closed, a lock that the thread holds, and its identifier.
_stopping: tuple[int, _thread.LockType, int] | None = None
_registered = False


def open_pipe() -> None:
    """Open the pipe that the children of this process watch."""
    global _own, _registered
    _own = os.pipe()
    if not _registered:
        _registered = True
        os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    """Keep the read end of the parent's pipe, and close the rest."""
    global _own, _parent, _stopping
    _stopping = None
    if _own is not None:
        read, write = _own
        os.close(write)
        if _parent >= 0:
            os.close(_parent)
        _own, _parent = None, read


def read_end() -> int:
    """Return the read end of the pipe that the children of this process watch."""
    assert _own is not None
    return _own[0]


def parent_pipe() -> int:
    """Return the read end of the parent's pipe, -1 if there is none."""
    return _parent


def adopt_input() -> None:
    """Keep the standard input as the parent's pipe."""
    global _parent
    _parent = os.dup(0)


def start() -> None:
    """Start to watch the parent.

    Raises:
        OSError: The system allows no further thread.
    """
    global _stopping
    if _parent < 0 or _stopping is not None:
        return
    read, write = os.pipe()
    running = _thread.allocate_lock()
    running.acquire()
    # A thread of `threading` would be listed among those of the program, and needs a module that is slow to import.
    try:
        # No handler of Python's may run late because a signal went to this thread, so it blocks all.
        mask = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
        try:
            ident = _thread.start_new_thread(_watch, (_parent, read, running))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    except RuntimeError as error:  # Python only says "can't start new thread"
        os.close(read)
        os.close(write)
        raise OSError(errno.EAGAIN, explain(errno.EAGAIN)) from error
    _stopping = write, running, ident
    _count(ident, running=True)


def stop() -> None:
    """Stop watching the parent, and wait for the end of the thread."""
    global _stopping
    if _stopping is not None:
        write, running, ident = _stopping
        _stopping = None
        os.close(write)
        running.acquire()
        _count(ident, running=False)


def _count(ident: int, *, running: bool) -> None:
    from skate._base.background_threads import count_as_background

    count_as_background(ident, running=running)


def _watch(parent: int, stopped: int, running: _thread.LockType) -> None:
    files = select.poll()
    files.register(parent, select.POLLIN)
    files.register(stopped, select.POLLIN)
    ready = {descriptor for descriptor, _ in files.poll()}
    if stopped not in ready:
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(stopped)
    running.release()
