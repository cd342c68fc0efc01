"""Where a worker's training function is at this moment, and whether it waits for other workers there."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from dataclasses import dataclass
from types import FrameType

import skate

_SKATE = os.path.dirname(os.path.abspath(skate.__file__))
_OF_OTHERS = (
    _SKATE,
    *{sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")},
)

# Functions that return when other workers have come to them: part of the file's path, and names; all names if there
# are none. In a backward pass it is DDP that waits.
_MEETINGS: tuple[tuple[str, frozenset[str]], ...] = (
    ("/torch/distributed/", frozenset()),
    ("/torch/autograd/graph.py", frozenset({"_engine_run_backward"})),
    ("/torch/autograd/__init__.py", frozenset({"backward"})),
    ("/deepspeed/comm/", frozenset()),
    (f"{_SKATE}/train/_workers/sessions.py", frozenset({"ask"})),
    (f"{_SKATE}/util/collective/", frozenset()),
)


@dataclass(frozen=True)
class Stand:
    """Where a training function is.

    Attributes:
        place: The innermost line of the user's code.
        waits: Whether it waits for other workers.
        stack: All its calls, as in a traceback.
    """

    place: str
    waits: bool
    stack: str


def stand(thread: int) -> Stand | None:
    """Return where a thread of this process is; None if it has ended."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return None
    summary = traceback.StackSummary.extract(traceback.walk_stack(frame))  # innermost first
    mine = next((each for each in summary if not _is_of_others(each.filename)), summary[0])
    place = f"{mine.filename}, line {mine.lineno}, in {mine.name}"
    if mine.line:
        place += f": {mine.line}"
    summary.reverse()
    return Stand(place, _waits(frame), "".join(summary.format()))


def _is_of_others(path: str) -> bool:
    return path.startswith(("<frozen", *_OF_OTHERS))


def _waits(frame: FrameType | None) -> bool:
    """Tell whether a meeting is among the calls inside of the innermost one that is the user's."""
    while frame is not None:
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if any(part in path and (not names or name in names) for part, names in _MEETINGS):
            return True
        if not _is_of_others(path):
            return False
        frame = frame.f_back
    return False
