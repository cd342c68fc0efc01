"""Code that runs below other code, without noticing: no event loop around it, no exception being handled."""

from __future__ import annotations

import bdb
import sys
from types import TracebackType
from typing import Any

from skate._engine.common.signals import SignalExit


def passing() -> tuple[type[BaseException], ...]:
    """Return the exceptions that end the program: Ctrl-C, SIGTERM, pdb's `quit`, the end of a test."""
    outcomes = sys.modules.get("_pytest.outcomes")
    if outcomes is None:
        return KeyboardInterrupt, SignalExit, bdb.BdbQuit
    return KeyboardInterrupt, SignalExit, bdb.BdbQuit, outcomes.OutcomeException


class Apart:
    """Leave the event loop that runs in this thread, for the length of a `with` block.

    A task may start an event loop, and so may the engine, whether or not the caller is in one. The functions
    used are those that asyncio documents for other implementations of event loops.
    """

    __slots__ = ("_loop", "_task")

    _loop: Any
    _task: Any

    def __enter__(self) -> None:
        self._loop = self._task = None
        asyncio = sys.modules.get("asyncio")
        if asyncio is None:
            return
        self._loop = asyncio._get_running_loop()
        if self._loop is not None:
            self._task = asyncio.current_task(self._loop)
            if self._task is not None:
                asyncio.tasks._leave_task(self._loop, self._task)
            asyncio._set_running_loop(None)

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._loop is not None:
            import asyncio

            asyncio._set_running_loop(self._loop)
            if self._task is not None:
                asyncio.tasks._enter_task(self._loop, self._task)


def cut_context(error: BaseException, outer: BaseException | None) -> None:
    """Forget that `error` was raised while the caller was handling `outer`: in a process it was not."""
    if outer is None:
        return
    inner = error
    seen = set()
    while inner.__context__ is not None and id(inner) not in seen:
        if inner.__context__ is outer:
            inner.__context__ = None
            return
        seen.add(id(inner))
        inner = inner.__context__
