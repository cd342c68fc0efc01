"""A debugger inside a worker process, operated from the user's terminal.

`set_trace` in a task or actor stops it and listens on a socket. The driver connects its terminal if it has one; from
another terminal, `skate debug` lists the stops (`breakpoints`) and connects to one (`attach`). In the driver, and on
the inline engine everywhere, `set_trace` is plain pdb.
"""

from __future__ import annotations

import pdb
import sys
import traceback
from types import TracebackType

from skate._base.remote_pdb import Breakpoint, RemotePdb, attach, breakpoints, wait_for_debugger
from skate.util import _session
from skate.util._session import announce_breakpoint

__all__ = ["Breakpoint", "attach", "breakpoints", "post_mortem", "set_trace"]


def set_trace(breakpoint_uuid: str | None = None) -> None:
    """Stop here and let the user look around.

    This is what ``breakpoint()`` does in a worker. If the driver runs in the foreground of a terminal, the debugger
    opens there; otherwise the worker waits until somebody attaches with ``skate debug``. Then the usual pdb commands
    work. Disconnecting lets the worker run on, and so does Ctrl-C in the driver.

    Args:
        breakpoint_uuid: An id for the breakpoint; by default a new one.
    """
    frame = sys._getframe(1)
    folder = _session.worker_folder()
    if folder is None:
        pdb.Pdb().set_trace(frame)
        return
    connection = wait_for_debugger(
        folder, frame, frame.f_lineno, "set_trace()", breakpoint_uuid, announce_breakpoint
    )
    RemotePdb(connection).set_trace(frame)


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
    debugger = RemotePdb(wait_for_debugger(folder, frame, line, reason, None, announce_breakpoint))
    debugger.reset()
    debugger.interaction(None, trace)
    debugger.detach()
