"""Telling random stories, and telling one that goes wrong again, as short as possible."""

from __future__ import annotations

import time
import traceback

from tests.engine.local.state.simulation.choices import Choices, Tape
from tests.engine.local.state.simulation.ending import Ending
from tests.engine.local.state.simulation.simulation import Simulation


def tell(seed: int, steps: int) -> int:
    """Tell the story of a seed; return how many transitions the machine made.

    Raises:
        AssertionError: with the seed and the shortened story, if the machine broke a promise.
    """
    choices = Choices(seed)
    try:
        return _play(choices, steps).transitions
    except Exception as error:
        report = _explain(choices.tape, error)
    raise AssertionError(f"seed {seed}, {steps} steps: {report}")


def _play(choices: Choices, steps: int, lines: list[str] | None = None) -> Simulation:
    world = Simulation(choices, None if lines is None else lines.append)
    for _ in range(steps):
        if not choices.next_step():
            break
        world.step()
    Ending(world).run()
    return world


def _failure_of(tape: Tape) -> BaseException | None:
    try:
        _play(Choices(tape=tape), len(tape))
    except Exception as error:
        return error
    return None


def _signature(error: BaseException) -> tuple[object, ...]:
    """Tell failures apart: by where they were noticed."""
    frames = traceback.extract_tb(error.__traceback__)
    return type(error), [(frame.filename, frame.lineno) for frame in frames][-1]


def _explain(tape: Tape, error: BaseException, timeout_s: float = 40.0) -> str:
    wanted = _signature(error)

    def fails(candidate: Tape) -> bool:
        found = _failure_of(candidate)
        return found is not None and _signature(found) == wanted

    short = shorten(tape, fails, timeout_s)
    lines: list[str] = []
    last: BaseException = error
    try:
        _play(Choices(tape=short), len(short), lines)
    except Exception as again:
        last = again
    story = "\n".join(f"  {line}" for line in lines)
    where = "".join(traceback.format_tb(last.__traceback__)[-3:])
    return f"{type(last).__name__}: {last}\n{where}\n{len(short)} of {len(tape)} steps tell it:\n{story}"


def shorten(tape: Tape, fails: object, timeout_s: float) -> Tape:
    """Leave out steps as long as the story still fails, first many at a time, then one by one."""
    assert callable(fails)
    end = time.monotonic() + timeout_s
    size = max(1, len(tape) // 2)
    while size:
        start = 1  # the first step sets the scene
        while start < len(tape) and time.monotonic() < end:
            candidate = tape[:start] + tape[start + size :]
            if len(candidate) < len(tape) and fails(candidate):
                tape = candidate
            else:
                start += size
        size //= 2
    return tape
