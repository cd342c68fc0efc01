"""The progress of `get` and `wait` in a driver: how many objects are ready, and what the next one waits for."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import skate._engine as engines
from skate._api import objects
from skate._api.progress.display import show
from skate._api.progress.view import Bar, View
from skate._base.errors import RayError
from skate._base.locations import PACKAGE
from skate._base.object_ref import PENDING, ObjectRef

LOG_INTERVAL_S = (
    600.0  # at most, between two lines in a log: a program may wait for a server that runs for days
)
WHY_INTERVAL_S = 2.0  # between two queries of the node
_OWN = os.path.join(PACKAGE, "")


def show_wait(references: Sequence[ObjectRef[Any]], needed: int, ready: int) -> Callable[[], None] | None:
    """Show a wait of the program; the libraries show their own progress.

    Args:
        references: The references that are not ready.
        needed: How many of them must become ready.
        ready: How many others are ready already.

    Returns:
        The function that ends the display; None if nothing is shown.
    """
    name = _called_function()
    if name is None:
        return None
    wait = LongWait(name, references, needed, ready)
    shown = show(wait.view, keep=False, logs_end=False, max_log_interval=LOG_INTERVAL_S)
    return None if shown is None else shown.close


def _called_function() -> str | None:
    """Return "get" or "wait" if code outside of Skate has called it in this thread; otherwise None."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename != objects.__file__:
        frame = frame.f_back  # type: ignore[assignment]  # None at the end
    if frame is None or frame.f_back is None:
        return None
    return None if frame.f_back.f_code.co_filename.startswith(_OWN) else frame.f_code.co_name


class LongWait:
    """Describes a wait. It is called in another thread.

    Args:
        name: The function that waits.
        references: See `show_wait`.
        needed: See `show_wait`.
        ready: See `show_wait`.
        why: Explains what a reference waits for.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        name: str,
        references: Sequence[ObjectRef[Any]],
        needed: int,
        ready: int,
        why: Callable[[ObjectRef[Any]], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._references = references
        self._needed, self._ready = needed, ready
        self._why = why or _explain
        self._clock = clock
        self._begun = clock()
        self._asked: tuple[float, ObjectRef[Any], str] | None = None

    def view(self) -> View:
        """Return the current state."""
        pending = [reference for reference in self._references if reference._state == PENDING]
        done = min(len(self._references) - len(pending), self._needed)
        total = self._needed + self._ready
        reason = self._reason(pending[0]) if pending else ""
        return View(
            self._name,
            self._clock() - self._begun,
            bar=Bar(done + self._ready, total, "objects") if total > 1 else None,
            footer=reason,
            summary=reason.partition("\n")[0],
        )

    def _reason(self, reference: ObjectRef[Any]) -> str:
        now = self._clock()
        if self._asked is None or self._asked[1] is not reference or now - self._asked[0] >= WHY_INTERVAL_S:
            self._asked = now, reference, self._why(reference)
        return self._asked[2]


def _explain(reference: ObjectRef[Any]) -> str:
    engine = engines.running()
    if engine is None:
        return ""
    try:
        lines = engine.why(reference)
    except (RayError, ValueError):  # the session has ended, as the wait will soon see
        return ""
    return "\n".join(lines[:1] + lines[1:][-1:])  # the first step, and the cause
