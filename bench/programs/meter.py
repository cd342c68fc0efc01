"""The clock that every program here shares: warm up, time, report one figure."""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import time
from collections.abc import Callable
from types import ModuleType

# The harness looks for this in the program's output; keep it in step with harness/launcher.py.
MARK = "FIGURE "


class Job:
    """One row to run, as the command line names it."""

    def __init__(self) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("system", help="the module to import, or the name of a peer")
        parser.add_argument("row", help="the function of this file to run")
        parser.add_argument("--cpus", type=int, default=2)
        parser.add_argument(
            "--warmup", type=float, default=1.0, help="seconds to run before the clock starts"
        )
        parser.add_argument("--seconds", type=float, default=2.0, help="seconds to run with the clock on")
        options = parser.parse_args()
        self.system: str = options.system
        self.row: str = options.row
        self.cpus: int = options.cpus
        self.warmup: float = options.warmup
        self.seconds: float = options.seconds

    def load(self) -> ModuleType:
        """Import the system under test: `import skate as ray`, or `import ray`."""
        return importlib.import_module(self.system)

    def rate(self, step: Callable[[], object], per_step: float = 1) -> float:
        """Return how many units a second `step` gets done, `per_step` of them in each call.

        The warm-up follows the same rule on every system: so many seconds, and at least one step.
        """
        _repeat(step, self.warmup)
        steps, elapsed = _repeat(step, self.seconds)
        return steps * per_step / elapsed

    def typical(self, step: Callable[[], object], warmup_steps: int) -> float:
        """Return the median seconds of a step whose cost jumps between two states, warm and cold."""
        for _ in range(warmup_steps):
            step()
        times = []
        deadline = time.perf_counter() + self.seconds
        while (start := time.perf_counter()) < deadline or not times:
            step()
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    def once(self, prepare: Callable[[], object], step: Callable[[], object]) -> float:
        """Return the seconds of a step that cannot be repeated in one process without disturbing itself."""
        prepare()
        start = time.perf_counter()
        step()
        return time.perf_counter() - start

    def run_on(self, ray: ModuleType, *rows: Callable[[], float]) -> None:
        """Start a session, run the chosen row in it, report."""
        ray.init(num_cpus=self.cpus, include_dashboard=False)
        try:
            self.run(*rows)
        finally:
            ray.shutdown()

    def run(self, *rows: Callable[[], float]) -> None:
        """Run the chosen row and report its figure."""
        value = {row.__name__: row for row in rows}[self.row]()
        print(MARK + json.dumps({"system": self.system, "row": self.row, "value": value}), flush=True)


def _repeat(step: Callable[[], object], seconds: float) -> tuple[int, float]:
    steps = 0
    start = time.perf_counter()
    while True:
        step()
        steps += 1
        elapsed = time.perf_counter() - start
        if elapsed >= seconds:
            return steps, elapsed
