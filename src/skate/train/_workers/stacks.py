"""Where a worker's training function is at this moment, and whether it waits for other workers there."""

from __future__ import annotations

import os
import sys
import sysconfig
import time
import traceback
from dataclasses import dataclass
from types import FrameType

import skate
from skate.train._reports.messages import MEETINGS
from skate.train._workers import sessions

_SKATE = os.path.dirname(os.path.abspath(skate.__file__))
_OF_OTHERS = (
    _SKATE,
    *{sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")},
)

# Functions that return when other workers have come to them: part of the file's path, and names; all names if there
# are none. In a backward pass it is DDP that waits.
_C10D = "/torch/distributed/distributed_c10d.py"
_MEETINGS: tuple[tuple[str, frozenset[str]], ...] = (
    ("/torch/distributed/", frozenset()),
    ("/torch/autograd/graph.py", frozenset({"_engine_run_backward"})),
    ("/torch/autograd/__init__.py", frozenset({"backward"})),
    ("/deepspeed/comm/", frozenset()),
    (sessions.__file__, frozenset({"ask"})),
    (f"{_SKATE}/util/collective/", frozenset()),
)


@dataclass(frozen=True)
class Stand:
    """Where a training function is.

    Attributes:
        place: The innermost line of the user's code.
        waits: Whether it waits for other workers.
        stack: All its calls, as in a traceback.
        group: The ranks that take part in the collective operation that it waits in; None if they are not known.
        call: A number of the call that waits, which another call never has; 0 if it does not wait.
        cpu: Seconds of processor time that the function's thread has used.
    """

    place: str
    waits: bool
    stack: str
    group: frozenset[int] | None = None
    call: int = 0
    cpu: float = 0.0


class Observer:
    """Looks at the thread of a training function, and recognises a call that it has seen before."""

    def __init__(self) -> None:
        # A frame belongs to one call. It is kept, because another may get its address as soon as it is gone.
        self._seen: FrameType | None = None
        self._calls = 0

    def stand(self, thread: int, world_size: int) -> Stand | None:
        """Return where a thread of this process is; None if it has ended.

        Args:
            thread: Its identifier.
            world_size: How many workers train.
        """
        frame = sys._current_frames().get(thread)
        if frame is None:
            return None
        try:
            cpu = time.clock_gettime(time.pthread_getcpuclockid(thread))
        except OSError:  # it has ended just now
            return None
        summary = traceback.StackSummary.extract(traceback.walk_stack(frame))  # innermost first
        mine = next((each for each in summary if not _is_of_others(each.filename)), summary[0])
        place = f"{mine.filename}, line {mine.lineno}, in {mine.name}"
        if mine.line:
            place += f": {mine.line}"
        summary.reverse()
        stack = "".join(summary.format())
        meetings = _meetings(frame)
        if not meetings:
            self._seen = None
            return Stand(place, waits=False, stack=stack, cpu=cpu)
        if meetings[-1] is not self._seen:
            self._seen = meetings[-1]
            self._calls += 1
        group = next((ranks for each in meetings if (ranks := _group(each, world_size)) is not None), None)
        return Stand(place, waits=True, stack=stack, group=group, call=self._calls, cpu=cpu)


def _is_of_others(path: str) -> bool:
    return path.startswith(("<frozen", *_OF_OTHERS))


def _meetings(frame: FrameType | None) -> list[FrameType]:
    """Return the meetings among the calls inside of the innermost one that is the user's, innermost first."""
    found = []
    while frame is not None:
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if any(part in path and (not names or name in names) for part, names in _MEETINGS):
            found.append(frame)
        elif not _is_of_others(path):
            break
        frame = frame.f_back
    return found


def _group(frame: FrameType, world_size: int) -> frozenset[int] | None:
    """Return the ranks that take part in a meeting, if this call of it shows them."""
    path, known = frame.f_code.co_filename, frame.f_locals
    if path == sessions.__file__:
        return frozenset(range(world_size) if known.get("question") in MEETINGS else ())
    if not path.endswith(_C10D) or "group" not in known:
        return None
    group = known["group"]
    if group is None:
        return frozenset(range(world_size))
    try:
        import torch.distributed as dist

        return frozenset(dist.get_process_group_ranks(group))
    except Exception:  # a group of which torch itself does not know the ranks
        return None
