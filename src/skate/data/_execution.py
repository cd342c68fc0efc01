"""One run of a plan: its items, in order, as somebody takes them."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

import skate
from skate.data._exec.drivers.inprocess import InProcessDriver
from skate.data._exec.drivers.threads import ThreadDriver
from skate.data._exec.drivers.workers import WorkerDriver
from skate.data._exec.items import Item, Report, fetch_rows
from skate.data._exec.limits import Limits
from skate.data._exec.operator_stats import OperatorStats
from skate.data._exec.operators import Operator
from skate.data._exec.progress import Progress, wanted
from skate.data._exec.scheduler import Scheduler
from skate.data._exec.tasks import Task
from skate.data._exec.waiting import Waiting
from skate.data._plan import estimates, nodes, relational
from skate.data._plan.optimizer import optimize
from skate.data._plan.planner import Planner
from skate.data.context import DataContext
from skate.exceptions import RayTaskError

_GIB = 1024**3
_logger = logging.getLogger(__name__)


class Execution:
    """Runs a plan, once.

    Iterate over it for the items. Leaving the iteration, or `close`, ends all that runs.

    Args:
        node: The plan.
        context: The settings of the dataset.
        name: What the dataset is called.
        runs_before: How often the dataset has been run: a seed may give other values each time.
        seed: Decides all that is random and has no seed of its own, together with `runs_before`; None is chance.

    Attributes:
        stats: What each operator has done, by its name, upstream first.
        dead_letters: Blocks of rows that have failed.
    """

    def __init__(
        self,
        node: nodes.Node,
        context: DataContext,
        name: str | None = None,
        runs_before: int = 0,
        seed: int | None = None,
    ) -> None:
        self.context = context
        self.name = name
        self._runs_before = runs_before
        self._seed = seed
        self.plan = optimize(node)
        self.stats: dict[Operator, OperatorStats] = {}
        self.dead_letters: list[Item] = []
        self.begun: float | None = None
        self.ended: float | None = None
        self.waited = 0.0  # how long the consumer has waited for items
        self._driver: InProcessDriver | ThreadDriver | WorkerDriver | None = None
        self._waiting: Waiting | None = None

    def __iter__(self) -> Iterator[Item]:
        self.begun = time.perf_counter()
        progress = None
        try:
            self._start()
            if wanted(self.context.enable_progress_bars):
                progress = Progress(self.name or "dataset", self.stats)
            while True:
                before = time.perf_counter()
                item = self._next()
                self.waited += time.perf_counter() - before
                if item is None:
                    return
                yield item
        finally:
            if progress is not None:
                progress.stop()
            if self._waiting is not None:
                self._waiting.note()
            self.close()
            self.ended = time.perf_counter()

    @property
    def scheduler(self) -> Scheduler:
        """What decides about the running plan."""
        assert self._driver is not None
        return self._driver.scheduler

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows of each item."""
        for item in self:
            yield fetch_rows(item)

    def close(self) -> None:
        """End all that runs."""
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    # ------------------------------------------------------------

    def _start(self) -> None:
        here = self._is_small()
        threads = not here and relational.runs_on_threads(self.plan, self.context)
        cpus = _cpus(here or threads)
        limits = _limits(self.context, cpus, here)
        plan = relational.with_fast_readers(self.plan) if threads else self.plan
        store = None if here or threads else _store()
        root = Planner(self.context, cpus, self._runs_before, store, self._seed).plan(plan)
        scheduler = Scheduler(root, limits, self.context.target_max_block_size or 32 * 1024 * 1024)
        self.stats = {operator: OperatorStats(operator.name) for operator in reversed(scheduler.operators)}
        self._waiting = Waiting(scheduler, self.stats)
        if here:
            self._driver = InProcessDriver(scheduler, self._made)
        elif threads:
            self._driver = ThreadDriver(scheduler, self._made, 2 * relational.most_bytes(self.context))
        else:
            self._driver = WorkerDriver(scheduler, self._made)

    def _next(self) -> Item | None:
        driver = self._driver
        assert driver is not None
        if isinstance(driver, WorkerDriver):
            return driver.next()
        try:
            item = driver.next()
        except Exception as error:  # as if a worker had raised it
            raise as_task_error(error, "data") from None
        if item is None and not driver.scheduler.finished:
            scheduler, instructions = driver.hand_over()
            scheduler.limits = _limits(self.context, _cpus(False), False)
            self._driver = WorkerDriver(scheduler, self._made, instructions)
            return self._driver.next()
        return item

    def _is_small(self) -> bool:
        """Tell whether the plan can run in this process."""
        size = estimates.source_bytes(self.plan)
        if size is None or size > self.context.small_plan_bytes:
            return False
        return all(
            each.compute.runs_anywhere() and not _has_class(each)
            for each in self.plan.walk()
            if hasattr(each, "compute")
        )

    def _made(self, task: Task, item: Item, report: Report) -> bool:
        """Count a block; keep it apart if it is of rows that have failed."""
        self.stats[task.operator].add(task, report)
        if task.unit is not None:
            task.unit.failed_rows += report.notes.get("failed_rows", 0)
        if report.notes.get("errored") is not None:
            self._tolerate(task, report.notes["errored"])
            return False
        if not report.notes.get("dead_letter"):
            return True
        self.dead_letters.append(item)
        return False

    def _tolerate(self, task: Task, error: RayTaskError) -> None:
        """Count a task that has failed, as far as the user lets tasks fail; a write to be resumed lacks no rows."""
        allowed = self.context.max_errored_blocks
        errored = sum(each.errored_blocks for each in self.stats.values())
        if task.unit is not None or 0 <= allowed < errored:
            raise error.as_instanceof_cause()
        _logger.warning("A task of %s has failed, and its block is left out: %s", task.operator.name, error)


def _has_class(node: Any) -> bool:
    return hasattr(node, "udf") and node.udf.is_class


def as_task_error(error: Exception, name: str) -> Exception:
    """Return an error as `skate.get` raises it, of what has failed in this process."""
    if isinstance(error, RayTaskError):
        return error
    return RayTaskError.from_exception(name, error).as_instanceof_cause()


def _cpus(here: bool) -> float:
    if here and not skate.is_initialized():
        return float(os.cpu_count() or 1)
    if not skate.is_initialized():
        skate.init()
    return float(skate.cluster_resources().get("CPU", 1))


def _store() -> int | None:
    """Return the bytes of the object store, where tasks leave their blocks; None if nobody says so."""
    return int(skate.cluster_resources().get("object_store_memory", 0)) or None


def _limits(context: DataContext, cpus: float, here: bool) -> Limits:
    """Return what a plan may use: the user's limits, or what is good for streaming on this machine."""
    options = context.execution_options.resource_limits
    excluded = context.execution_options.exclude_resources
    cpus = max(1.0, min(cpus, options.cpu if options.cpu is not None else cpus) - (excluded.cpu or 0))
    block = context.target_max_block_size or 32 * 1024 * 1024
    budget = context.memory_budget or int(max(_GIB // 4, 4 * cpus * block))
    store = options.object_store_memory
    if store is not None and store != float("inf"):
        budget = int(store)
    return Limits(cpus=1.0 if here else cpus, bytes=budget, memory=_memory(context))


def _memory(context: DataContext) -> int | None:
    """Return the bytes that blocks and workers may have together: the user's limit, or what a session may use."""
    most = context.execution_options.resource_limits.memory
    if most is None or most == float("inf"):
        most = skate.cluster_resources().get("memory") if skate.is_initialized() else None
    return None if most is None else int(most - (context.execution_options.exclude_resources.memory or 0))
