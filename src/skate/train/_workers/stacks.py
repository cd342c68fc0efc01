"""Where a worker's training function is at this moment, and whether it waits there for other workers."""

from __future__ import annotations

import os
import sys
import sysconfig
import time
import traceback
from dataclasses import dataclass
from types import FrameType

import skate
from skate.train._reports.messages import COLLECTIVES
from skate.train._workers import sessions

_SKATE = os.path.dirname(os.path.abspath(skate.__file__))
_LIBRARIES = (
    _SKATE,
    *{sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")},
)

# Functions that return once other workers have called them too: a part of the file's path, and the names, or no names
# for all functions of the file. In a backward pass it is DDP that waits.
_C10D = "/torch/distributed/distributed_c10d.py"
_COLLECTIVE_FUNCTIONS: tuple[tuple[str, frozenset[str]], ...] = (
    ("/torch/distributed/", frozenset()),
    ("/torch/autograd/graph.py", frozenset({"_engine_run_backward"})),
    ("/torch/autograd/__init__.py", frozenset({"backward"})),
    ("/deepspeed/comm/", frozenset()),
    (sessions.__file__, frozenset({"request"})),
    (f"{_SKATE}/util/collective/", frozenset()),
)


@dataclass(frozen=True)
class WorkerProgress:
    """The current position of a training function.

    Attributes:
        line: The innermost line of the user's code.
        is_waiting: Whether it waits for other workers.
        stack: All its calls, formatted like a traceback.
        group: The ranks that take part in the collective operation that it waits in; None if unknown.
        call: A unique number of the waiting call; 0 if it does not wait.
        cpu: Seconds of processor time that the function's thread has used.
    """

    line: str
    is_waiting: bool
    stack: str
    group: frozenset[int] | None = None
    call: int = 0
    cpu: float = 0.0


class Observer:
    """Observes the thread of a training function, and recognizes a call that it has seen before."""

    def __init__(self) -> None:
        # A frame belongs to one call. Keeping it prevents another frame from getting its address.
        self._seen: FrameType | None = None
        self._calls = 0

    def observe(self, thread: int, world_size: int) -> WorkerProgress | None:
        """Return the position of a thread of this process; None if it has ended.

        Args:
            thread: Its identifier.
            world_size: The number of workers.
        """
        frame = sys._current_frames().get(thread)
        if frame is None:
            return None
        try:
            cpu = time.clock_gettime(time.pthread_getcpuclockid(thread))
        except OSError:  # it has just ended
            return None
        summary = traceback.StackSummary.extract(traceback.walk_stack(frame))  # innermost first
        innermost = next((each for each in summary if not _is_library(each.filename)), summary[0])
        line = f"{innermost.filename}, line {innermost.lineno}, in {innermost.name}"
        if innermost.line:
            line += f": {innermost.line}"
        summary.reverse()
        stack = "".join(summary.format())
        collectives = _collective_calls(frame)
        if not collectives:
            self._seen = None
            return WorkerProgress(line, is_waiting=False, stack=stack, cpu=cpu)
        if collectives[-1] is not self._seen:
            self._seen = collectives[-1]
            self._calls += 1
        group = next(
            (ranks for each in collectives if (ranks := _participants(each, world_size)) is not None), None
        )
        return WorkerProgress(line, is_waiting=True, stack=stack, group=group, call=self._calls, cpu=cpu)


def _is_library(path: str) -> bool:
    return path.startswith(("<frozen", *_LIBRARIES))


def _collective_calls(frame: FrameType | None) -> list[FrameType]:
    """Return the frames of collective functions below the user's innermost frame, innermost first."""
    found = []
    while frame is not None:
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if any(part in path and (not names or name in names) for part, names in _COLLECTIVE_FUNCTIONS):
            found.append(frame)
        elif not _is_library(path):
            break
        frame = frame.f_back
    return found


def _participants(frame: FrameType, world_size: int) -> frozenset[int] | None:
    """Return the ranks that take part in a collective call, if this frame shows them."""
    path, known = frame.f_code.co_filename, frame.f_locals
    if path == sessions.__file__:
        return frozenset(range(world_size) if known.get("kind") in COLLECTIVES else ())
    if not path.endswith(_C10D) or "group" not in known:
        return None
    group = known["group"]
    if group is None:
        return frozenset(range(world_size))
    try:
        import torch.distributed as dist

        return frozenset(dist.get_process_group_ranks(group))
    except Exception:  # torch does not know the ranks of every group
        return None
