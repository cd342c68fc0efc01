"""The measurements of `skate microbenchmark`: short programs that run on Skate and on Ray.

As a program, it measures one of them: `python -m skate.cli.measurements ray OPTIONS FILE`, with the options as JSON.
"""

from __future__ import annotations

import importlib
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

__all__ = ["ROWS", "Measurement", "Row", "available_rows", "measure", "run"]

BATCH: Final = 1000
LARGE: Final = 32_000_000  # bytes of a large object
SAMPLES: Final = 5
WARMUP_SHARE: Final = 0.2  # of the measured time

Step = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the benchmark.

    Attributes:
        name: Its name; `make bench` has rows with these names, with larger arrays and longer measurements.
        unit: The unit of the rate, per second.
        about: Description of the work.
        prepare: Returns the step to repeat for a module with Ray's API, and the number of units in a step.
        needs_numpy: Whether it needs numpy.
    """

    name: str
    unit: str
    about: str
    prepare: Callable[[Any], tuple[Step, float]]
    needs_numpy: bool = False


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of a row.

    Attributes:
        name: The name of the row.
        unit: The unit of the rate, per second.
        rate: The median of the samples.
        spread: Half the difference between the highest and the lowest sample.
        samples: The rates of the samples.
    """

    name: str
    unit: str
    rate: float
    spread: float
    samples: list[float]


# The remote functions and classes are local, so that they are pickled by value and workers need not import this module.


def _tasks_sync(ray: Any) -> tuple[Step, float]:
    nothing = _nothing(ray)
    return lambda: ray.get(nothing.remote()), 1


def _tasks_async(ray: Any) -> tuple[Step, float]:
    nothing = _nothing(ray)
    return lambda: ray.get([nothing.remote() for _ in range(BATCH)]), BATCH


def _actor_sync(ray: Any) -> tuple[Step, float]:
    actor = _actor(ray)
    return lambda: ray.get(actor.answer.remote()), 1


def _actor_async(ray: Any) -> tuple[Step, float]:
    actor = _actor(ray)
    return lambda: ray.get([actor.answer.remote() for _ in range(BATCH)]), BATCH


def _put_small(ray: Any) -> tuple[Step, float]:
    return lambda: ray.put(0), 1


def _get_small(ray: Any) -> tuple[Step, float]:
    ref = ray.put(0)
    return lambda: ray.get(ref), 1


def _put_large(ray: Any) -> tuple[Step, float]:
    import numpy

    array = numpy.ones(LARGE, dtype=numpy.uint8)
    return lambda: ray.put(array), LARGE / 1e9


def _get_large(ray: Any) -> tuple[Step, float]:
    def make(size: int) -> Any:
        import numpy

        return numpy.ones(size, dtype=numpy.uint8)

    task = ray.remote(make)
    refs = [task.remote(LARGE) for _ in range(2)]
    ray.wait(refs, num_returns=len(refs))
    turn = itertools.cycle(refs)
    return lambda: ray.get(next(turn))[-1], 1


def _wait_1k(ray: Any) -> tuple[Step, float]:
    nothing = _nothing(ray)

    def step() -> None:
        waiting = [nothing.remote() for _ in range(BATCH)]
        fetch = True
        while waiting:
            # One request for the results is enough: with Ray, each further request costs a message per reference.
            _, waiting = ray.wait(waiting, fetch_local=fetch)
            fetch = False

    return step, 1


def _nothing(ray: Any) -> Any:
    def nothing() -> bytes:
        return b"ok"

    return ray.remote(nothing)


def _actor(ray: Any) -> Any:
    class Plain:
        def answer(self) -> bytes:
            return b"ok"

    return ray.remote(num_cpus=0)(Plain).remote()


ROWS: Final = (
    Row("tasks_sync", "tasks", "submit a task, get its result", _tasks_sync),
    Row("tasks_async", "tasks", f"submit {BATCH:,} tasks, get all results", _tasks_async),
    Row("actor_sync", "calls", "call an actor, get the result", _actor_sync),
    Row("actor_async", "calls", f"make {BATCH:,} calls to an actor, get all results", _actor_async),
    Row("put_small", "puts", "put an integer", _put_small),
    Row("get_small", "gets", "get an integer", _get_small),
    Row("put_large", "GB", f"put an array of {LARGE // 1_000_000} MB", _put_large, needs_numpy=True),
    Row("get_large", "gets", "get such an array that a task made", _get_large, needs_numpy=True),
    Row("wait_1k", "rounds", f"submit {BATCH:,} tasks, wait for one at a time", _wait_1k),
)


def available_rows(names: Sequence[str] = ()) -> list[Row]:
    """Return the rows with these names, or all; without numpy, only those that do not need it."""
    has_numpy = find_spec("numpy") is not None
    return [row for row in ROWS if (not names or row.name in names) and (has_numpy or not row.needs_numpy)]


def measure(step: Step, per_step: float, seconds: float) -> list[float]:
    """Return the rates of several samples of a step.

    Args:
        step: The work.
        per_step: The units in a step.
        seconds: The duration of all samples together, without the warm-up. Each sample has at least one step.
    """
    _rate(step, seconds * WARMUP_SHARE)
    return [per_step * _rate(step, seconds / SAMPLES) for _ in range(SAMPLES)]


def _rate(step: Step, seconds: float) -> float:
    steps = 0
    start = time.perf_counter()
    while True:
        step()
        steps += 1
        elapsed = time.perf_counter() - start
        if elapsed >= seconds:
            return steps / elapsed


def run(system: str, names: Sequence[str], seconds: float, num_cpus: int | None) -> Iterator[Measurement]:
    """Measure rows in a separate session.

    Args:
        system: The module to measure: "skate" or "ray".
        names: The names of the rows; none for all.
        seconds: The duration of a row.
        num_cpus: The CPUs of the session; None for those of the machine.
    """
    ray: Any = importlib.import_module(system)
    ray.init(
        address="local",
        num_cpus=num_cpus,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
    )
    try:
        for row in available_rows(names):
            samples = measure(*row.prepare(ray), seconds)
            rate, spread = statistics.median(samples), (max(samples) - min(samples)) / 2
            yield Measurement(row.name, row.unit, rate, spread, samples)
    finally:
        ray.shutdown()


def _main(system: str, options: str, file: str) -> None:
    found = [asdict(each) for each in run(system, **json.loads(options))]
    Path(file).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    _main(*sys.argv[1:])
