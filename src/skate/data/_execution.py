"""One execution of a plan: chooses a driver, and yields the items of the plan in order."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

import skate
from skate._api import progress
from skate.data._exec.drivers.inprocess import InProcessDriver
from skate.data._exec.drivers.threads import ThreadDriver
from skate.data._exec.items import Item, Report, fetch_rows
from skate.data._exec.limits import Limits
from skate.data._exec.operator_stats import IdleTimes, OperatorStats
from skate.data._exec.operators import Operator, Tasks
from skate.data._exec.progress import PlanProgress
from skate.data._exec.run_description import RunDescription, operator_names
from skate.data._exec.run_spans import RunSpans
from skate.data._exec.scheduler import Instruction, Scheduler
from skate.data._exec.tasks import Blocks, Task
from skate.data._exec.worker import as_task_error, put_work
from skate.data._plan import estimates, nodes, placement, relational
from skate.data._plan.optimizer import optimize
from skate.data._plan.planner import Planner
from skate.data.context import DEFAULT_MAX_BLOCK_SIZE, DataContext
from skate.exceptions import RayTaskError
from skate.util._run_records import RunRecord, status_after
from skate.util._session import engine_name

if TYPE_CHECKING:
    from skate.data._exec.drivers.workers import WorkerDriver, WorkHandles

_GIB = 1024**3
_logger = logging.getLogger(__name__)


class Execution:
    """Executes a plan once.

    Iterate over it for the items. Ending the iteration, or `close`, stops all tasks.

    Args:
        node: The plan.
        context: The settings of the dataset.
        name: The name of the dataset.
        runs_before: Number of earlier executions of the dataset; a seed may give different values in each.
        seed: Together with `runs_before`, the seed of random operations that have none; None draws one.

    Attributes:
        stats: Statistics of each operator, upstream first.
        dead_letters: Items of dead-letter rows.
        begun: Start time of the execution.
        ended: End time of the execution.
        waited: Seconds that the consumer has waited for items.
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
        self._node = node
        self._runs_before = runs_before
        self._seed = seed
        self.plan = optimize(node)
        self.stats: dict[Operator, OperatorStats] = {}
        self.dead_letters: list[Item] = []
        self.begun: float | None = None
        self.ended: float | None = None
        self.waited = 0.0
        self._driver: InProcessDriver | ThreadDriver | WorkerDriver | None = None
        self._idle_times: IdleTimes | None = None
        self._record: RunRecord | None = None
        self._spans: RunSpans | None = None
        self._is_awaited = False
        self._is_consumed_here = False
        self._work_handles: WorkHandles = {}

    def __iter__(self) -> Iterator[Item]:
        self.begun = time.perf_counter()
        shown = None
        try:
            self._start()
            shown = self._show_progress()
            while True:
                before = time.perf_counter()
                self._is_awaited = True
                item = self._next()
                self._is_awaited = False
                self.waited += time.perf_counter() - before
                if item is None:
                    return
                yield item
        except GeneratorExit:  # the consumer needs no more rows
            raise
        except BaseException as error:
            if self._record is not None:
                self._record.close(status_after(error), error)
            self._end_spans(error)
            raise
        finally:
            if shown is not None:
                shown.close()
            if self._idle_times is not None:
                self._idle_times.record()
            self.close()
            self.ended = time.perf_counter()
            if self._record is not None:
                self._record.close("FINISHED")
                self._record = None
            self._end_spans()

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler of the running plan."""
        assert self._driver is not None
        return self._driver.scheduler

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows of each item."""
        self._is_consumed_here = True
        for item in self:
            yield fetch_rows(item)

    def close(self) -> None:
        """Stop all tasks."""
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    # ------------------------------------------------------------

    def _start(self) -> None:
        is_small = placement.is_small(self.plan, self.context)
        # Other consumers take references to blocks, or further parts of a plan.
        is_short = (
            not is_small and self._is_consumed_here and placement.is_short_stream(self.plan, self.context)
        )
        is_short = is_short and skate.is_initialized()
        in_process = is_small or is_short
        threads = not in_process and relational.runs_on_threads(self.plan, self.context)
        cpus = _count_cpus(needs_session=not (in_process or threads))
        limits = _limits(self.context, cpus, in_process=in_process)
        plan = self.plan
        if threads:
            plan = relational.with_fast_readers(plan)
        elif is_short:
            plan = placement.with_parallel_readers(plan)
        store = None if in_process or threads else _object_store_bytes()
        root = Planner(self.context, cpus, self._runs_before, store, self._seed).plan(plan)
        scheduler = Scheduler(root, limits, _block_size(self.context))
        self.stats = {operator: OperatorStats(operator.name) for operator in reversed(scheduler.operators)}
        self._idle_times = IdleTimes(scheduler, self.stats)
        self._spans = RunSpans.start(self.name or operator_names(self.stats))
        if in_process:
            workers = _limits(self.context, cpus, in_process=False).cpus
            if (engine_name() or os.environ.get("SKATE_ENGINE")) == "inline":
                workers = 1.0  # it runs one task at a time, as this thread does
            if is_short:
                works = [each.work for each in scheduler.operators if isinstance(each, Tasks)]
                self._work_handles = {id(work): (put_work(work), work) for work in works}
            self._driver = InProcessDriver(
                scheduler, self._made, workers, self._start_workers, during_calls=is_short
            )
        elif threads:
            self._driver = ThreadDriver(scheduler, self._made, 2 * relational.max_source_bytes(self.context))
        else:
            from skate.data._exec.drivers.workers import WorkerDriver  # which imports asyncio

            self._driver = WorkerDriver(scheduler, self._made, spans=self._spans)
        self._begin_record()

    def _describe(self) -> RunDescription:
        assert self._idle_times is not None
        node = self._node.input if isinstance(self._node, nodes.Write) else self._node
        return RunDescription(self.scheduler, self.stats, self._idle_times, lambda: estimates.row_count(node))

    def _show_progress(self) -> progress.Shown | None:
        """Show the run to the user, if it takes long."""
        context = self.context
        if not context.enable_progress_bars or not progress.is_wanted():
            return None
        plan = PlanProgress(
            self.name or "dataset",
            self._describe(),
            self.stats,
            has_operators=context.enable_operator_progress_bars,
            is_verbose=context.execution_options.verbose_progress,
            is_awaited=lambda: self._is_awaited,
        )
        return progress.show(plan.view)

    def _begin_record(self) -> None:
        """Record the run for the dashboard, unless it is too short for that."""
        name = self.name or operator_names(self.stats)
        self._record = RunRecord("data", name, self._describe(), keep_short=False)

    def _end_spans(self, error: BaseException | None = None) -> None:
        if self._spans is not None:
            counts = {each.name: {"rows": each.rows, "tasks": each.tasks} for each in self.stats.values()}
            self._spans.close(counts, error)
            self._spans = None

    def _next(self) -> Item | None:
        driver = self._driver
        assert driver is not None
        if not isinstance(driver, InProcessDriver | ThreadDriver):
            return driver.next()
        try:
            item = driver.next()
        except Exception as error:  # raise it as a worker would
            raise as_task_error(error, "data") from None
        if isinstance(driver, InProcessDriver):
            if driver.workers is None:
                return item
            self._driver = driver.workers
        elif item is None and not driver.scheduler.finished:
            self._driver = self._start_workers(driver.hand_over(), {})
        else:
            return item
        return self._driver.next()

    def _start_workers(self, instructions: list[Instruction], own: dict[Task, Blocks]) -> WorkerDriver:
        """Return the driver that continues on workers, given pending instructions and tasks begun in this thread."""
        from skate.data._exec.drivers.workers import WorkerDriver  # which imports asyncio

        scheduler = self.scheduler
        limits = _limits(self.context, _count_cpus(needs_session=True), in_process=False)
        driver = WorkerDriver(
            scheduler,
            self._made,
            [*instructions, *scheduler.resize(limits)],
            self._spans,
            own,
            self._work_handles,
        )
        if self._record is not None and not self._record.is_open:  # the session has just started
            self._begin_record()
        return driver

    def _made(self, task: Task, item: Item, report: Report) -> bool:
        """Count a block; return whether it belongs to the output, and store dead-letter rows."""
        self.stats[task.operator].add(task, report)
        if self._spans is not None:
            self._spans.made(task.operator.name)
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
        """Log the error of a task, or raise it if too many tasks have failed or the write is resumable."""
        allowed = self.context.max_errored_blocks
        errored = sum(each.errored_blocks for each in self.stats.values())
        if task.unit is not None or 0 <= allowed < errored:
            raise error.as_instanceof_cause()
        _logger.warning("A task of %s failed, and its block is dropped: %s", task.operator.name, error)


def _count_cpus(*, needs_session: bool) -> float:
    """Return the number of CPUs: of the session, which is started if needed, or of this machine."""
    if not needs_session and not skate.is_initialized():
        return float(os.cpu_count() or 1)
    if not skate.is_initialized():
        skate.init()
    return float(skate.cluster_resources().get("CPU", 1))


def _object_store_bytes() -> int | None:
    """Return the bytes of the object store of the session; None if they are unknown."""
    return int(skate.cluster_resources().get("object_store_memory", 0)) or None


def _block_size(context: DataContext) -> int:
    """Return the expected bytes of a block."""
    return context.target_max_block_size or DEFAULT_MAX_BLOCK_SIZE


def _limits(context: DataContext, cpus: float, *, in_process: bool) -> Limits:
    """Return the limits of a plan: those of the user, or defaults that suit streaming on this machine."""
    options = context.execution_options.resource_limits
    excluded = context.execution_options.exclude_resources
    cpus = max(1.0, min(cpus, options.cpu if options.cpu is not None else cpus) - (excluded.cpu or 0))
    budget = context.memory_budget or int(max(_GIB // 4, 4 * cpus * _block_size(context)))
    store = options.object_store_memory
    if store is not None and store != float("inf"):
        budget = int(store)
    return Limits(cpus=1.0 if in_process else cpus, bytes=budget, memory=_memory(context))


def _memory(context: DataContext) -> int | None:
    """Return the memory limit of blocks and workers together: that of the user, or that of the session."""
    most = context.execution_options.resource_limits.memory
    if most is None or most == float("inf"):
        most = skate.cluster_resources().get("memory") if skate.is_initialized() else None
    return None if most is None else int(most - (context.execution_options.exclude_resources.memory or 0))
