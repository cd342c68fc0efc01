"""The worker driver: runs a plan on workers.

A thread with an event loop starts tasks, reads their blocks, and reports events to the scheduler. If the plan began in
the consumer's thread, the tasks that have begun there end there, while the consumer waits.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import skate
from skate.data._exec import interruption as interruptions
from skate.data._exec import meter
from skate.data._exec.actor_pool import ActorPool, PoolActor
from skate.data._exec.items import Item, Report
from skate.data._exec.operators import Operator
from skate.data._exec.run_spans import RunSpans
from skate.data._exec.scheduler import Cancel, Instruction, Resume, Scheduler, Start, StartActor, StopActor
from skate.data._exec.tasks import Blocks, OnMade, Task, Work
from skate.data._exec.worker import (
    BACKPRESSURE_OBJECTS,
    HOST,
    WorkerActor,
    WorkHandle,
    as_task_error,
    put_work,
    task_function,
    with_preloading,
)
from skate.exceptions import RayActorError

WorkHandles = dict[int, tuple[WorkHandle, Work]]  # the work keeps its id unique

_logger = logging.getLogger(__name__)

_DROP_TIMEOUT_S = 30  # for the finalizers of instances of user classes


class WorkerDriver:
    """Runs the tasks of a scheduler on workers; the consumer takes items from it.

    Args:
        scheduler: The scheduler.
        on_made: Called for each block; returns whether to pass it to the scheduler.
        instructions: The first instructions, if the plan has begun in this process.
        spans: The spans of the run, if tracing is on.
        own: The tasks that have begun in the consumer's thread.
        work_handles: The handles of works that are stored already, by the ids of the works.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        on_made: OnMade,
        instructions: list[Instruction] | None = None,
        spans: RunSpans | None = None,
        own: dict[Task, Blocks] | None = None,
        work_handles: WorkHandles | None = None,
    ) -> None:
        self.scheduler = scheduler
        self._on_made = on_made
        self._spans = spans
        self._changed = threading.Condition()  # guards the scheduler
        self._error: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._readers: dict[Task, asyncio.Task[None]] = {}
        self._starting: dict[PoolActor, asyncio.Task[None]] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self._generators: dict[Task, Any] = {}
        self._resumed: dict[Task, asyncio.Event] = {}
        self._work_handles = work_handles or {}
        self._functions: dict[tuple[Operator, bool], Any] = {}
        self._own = own or {}
        self._reported: set[Task] = set()  # own tasks with a block that the scheduler has not received yet
        self._cancelled: set[Task] = set()  # own tasks whose results are not needed
        self._closed = False
        self._first = instructions
        self._thread = threading.Thread(target=self._run, name="skate-data", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------ consumer

    def next(self) -> Item | None:
        """Wait for the next item; return None at the end. Run own tasks meanwhile."""
        interruption = interruptions.current()
        interruption.register(self._changed)
        while True:
            with self._changed:
                interruption.check()
                if self._error is not None:
                    raise self._error
                item, instructions = self.scheduler.take()
                if instructions:
                    self._loop.call_soon_threadsafe(self._perform, instructions)
                if item is not None or self.scheduler.finished:
                    return item
                task = self._next_own()
                if task is None:
                    self._changed.wait()
                    continue
                blocks = self._own[task]
            try:
                made = next(blocks, None)
            except Exception as error:  # raise it as a worker would
                raise as_task_error(error, "data") from None
            self.report_own(task, made)

    def _next_own(self) -> Task | None:
        """Return an own task that may create a block."""
        waiting = self._reported | self._cancelled
        return next((task for task in self._own if not task.paused and task not in waiting), None)

    def report_own(self, task: Task, made: tuple[pa.Table, Report] | None) -> None:
        """Report a block of an own task, or its end."""
        self._reported.add(task)
        self._loop.call_soon_threadsafe(self._handle_own, task, made)

    def close(self) -> None:
        """Stop all tasks and actors, and wait for the thread to end."""
        if self._closed:
            return
        self._closed = True
        self._loop.call_soon_threadsafe(self._finish)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        for blocks in self._own.values():
            blocks.close()

    # ------------------------------------------------------------ event loop

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.call_soon(self._begin)
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _begin(self) -> None:
        if self._first is None:
            self._report_event(self.scheduler.begin)
        else:
            self._perform(self._first)

    def _finish(self) -> None:
        with self._changed:
            instructions = self.scheduler.stop()
        self._perform(instructions)
        running = [*self._readers.values(), *self._starting.values()]
        for each in running:
            each.cancel()
        waiting = asyncio.gather(*running, *self._stopping, return_exceptions=True)
        waiting.add_done_callback(lambda _: self._loop.stop())

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            if self._error is None:
                self._error = error
            self._changed.notify_all()

    def _report_event(self, event: Callable[..., list[Instruction]], *args: Any) -> None:
        """Report an event to the scheduler, and perform its instructions."""
        with self._changed:
            try:
                instructions = event(*args)
            except Exception as error:  # the data are invalid; the consumer raises it
                self._error = self._error or error
                instructions = []
            self._changed.notify_all()
        self._perform(instructions)

    def _handle_own(self, task: Task, made: tuple[pa.Table, Report] | None) -> None:
        """Handle a block of an own task, or its end."""
        try:
            if made is None:
                with self._changed:
                    del self._own[task]
                self._report_event(self._ended, task)
            else:
                block, report = made
                item = Item.of(block, report)
                if self._on_made(task, item, report):
                    self._report_event(self._made, task, item, report)
        except Exception as error:  # the consumer raises it
            self._fail(error)
        with self._changed:
            self._reported.discard(task)
            self._changed.notify_all()

    def _perform(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            try:
                self._do(instruction)
            except Exception as error:  # the consumer raises it
                self._fail(error)
                return

    def _do(self, instruction: Instruction) -> None:
        match instruction:
            case Start(task):
                generator = self._traced(task.operator.name, self._submit, task)
                self._readers[task] = self._loop.create_task(self._read(task, generator))
            case Resume(task) if task in self._own:
                with self._changed:
                    self._changed.notify_all()
            case Resume(task):
                if task in self._resumed:
                    self._resumed[task].set()
            case Cancel(task) if task in self._own:
                self._cancelled.add(task)
            case Cancel(task):
                reader = self._readers.get(task)
                if reader is not None:
                    reader.cancel()
            case StartActor(pool, member):
                self._starting[member] = self._loop.create_task(self._start_actor(pool, member))
            case StopActor(member) if member.handle is not None and not member.tasks:
                stopping = self._loop.create_task(self._stop_idle_actor(member.handle))
                self._stopping.add(stopping)
                stopping.add_done_callback(self._stopping.discard)
            case StopActor(member):
                if member.handle is not None:
                    skate.kill(member.handle)
                elif member in self._starting:
                    self._starting[member].cancel()

    def _traced(self, operator: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function, under the span of an operator if tracing is on."""
        return function(*args) if self._spans is None else self._spans.run(operator, function, *args)

    def _submit(self, task: Task) -> Any:
        blocks = [item.block for item in task.inputs]
        spans = [(item.start, item.rows) for item in task.inputs]
        if task.actor is not None:
            run = task.actor.handle.run.options(
                num_returns="streaming", _generator_backpressure_num_objects=BACKPRESSURE_OBJECTS
            )
            generator = run.remote(task.argument, task.index, spans, *blocks)
        else:
            run = self._function(task.operator, task.borrows)
            generator = run.remote(self._work_handle(task.work), task.argument, task.index, spans, *blocks)
        self._generators[task] = generator
        return generator

    def _function(self, operator: Operator, borrows: bool) -> Any:
        """Return the remote function of an operator's tasks, which is cached unless its options may change."""
        found = self._functions.get((operator, borrows))
        if found is None:
            declared = dict(operator.options)
            max_calls = declared.pop("max_calls", None)
            options = {"name": operator.name, **declared, **_call_options_fn(operator.options_fn)}
            if borrows:
                options["num_cpus"] = 0
            found = task_function(max_calls).options(**with_preloading(options))
            if operator.options_fn is None:
                self._functions[operator, borrows] = found
        return found

    def _work_handle(self, work: Work) -> WorkHandle:
        """Return the handle of a work; a worker fetches the work only if it has not cached it."""
        found = self._work_handles.get(id(work))
        if found is None:
            found = self._work_handles[id(work)] = put_work(work), work
        return found[0]

    async def _read(self, task: Task, generator: Any) -> None:
        """Read the blocks of a task until its end."""
        reader = asyncio.current_task()
        try:
            async for reference in generator:
                report = await self._report(generator, reference)
                item = Item.of(reference, report)
                if self._on_made(task, item, report):
                    self._report_event(self._made, task, item, report)
                if reader is not None and reader.cancelling():
                    # The item made the task unnecessary. Let the cancellation take effect before the end of its actor
                    # raises an error here.
                    await asyncio.sleep(0)
                if task.paused:
                    resumed = self._resumed[task] = asyncio.Event()
                    await resumed.wait()
            self._report_event(self._ended, task)
        except asyncio.CancelledError:
            skate.cancel(generator)
            raise
        except Exception as error:  # the consumer raises it
            self._fail(error)
        finally:
            self._readers.pop(task, None)
            self._generators.pop(task, None)
            self._resumed.pop(task, None)

    def _made(self, task: Task, item: Item, report: Report) -> list[Instruction]:
        if (report.host, report.process) != (HOST, os.getpid()):
            self.scheduler.update_memory((report.host, report.process), report.memory)
        self._refresh_memory()
        return self.scheduler.made(task, item)

    def _ended(self, task: Task) -> list[Instruction]:
        self._refresh_memory()
        return self.scheduler.ended(task)

    def _refresh_memory(self) -> None:
        """If memory is short, read the current memory of the workers: their reports may be outdated."""
        if not self.scheduler.short_of_memory:
            return
        for host, process in list(self.scheduler.memory_of):
            if host == HOST:
                self.scheduler.update_memory((host, process), meter.memory_of(process) or 0)

    async def _report(self, generator: Any, block: Any) -> Report:
        """Return the report that follows a block in the stream."""
        try:
            following = await anext(generator)
        except StopAsyncIteration:
            await block  # raises the error of the task
            raise
        report: Report = await following
        return report

    def _create_actor(self, pool: ActorPool) -> tuple[Any, Any]:
        """Create an actor of a pool; return its handle, and a reference that is ready when the actor is."""
        options = {**pool.options, **_call_options_fn(pool.options_fn)}
        kind = skate.remote(WorkerActor).options(**with_preloading(options))
        handle = kind.remote(self._work_handle(pool.work))
        return handle, handle.ready.remote()

    async def _start_actor(self, pool: ActorPool, member: PoolActor) -> None:
        try:
            handle = await self._start(pool)
            self._report_event(self.scheduler.actor_started, member, handle)
        except Exception as error:  # the consumer raises it
            self._fail(error)
        finally:
            self._starting.pop(member, None)

    async def _start(self, pool: ActorPool) -> Any:
        """Start an actor of a pool, and return its handle. Replace actors that fail, as often as the pool allows."""
        while True:
            handle, ready = self._traced("actor pool", self._create_actor, pool)
            try:
                await ready
            except RayActorError as error:
                pool.start_failures += 1
                if 0 <= pool.max_start_failures < pool.start_failures:
                    raise
                _logger.warning("A worker actor did not start, and is replaced: %s", error)
            else:
                pool.start_failures = 0
                return handle

    async def _stop_idle_actor(self, handle: Any) -> None:
        """Let an actor drop its instances of user classes, which may hold resources, and kill it."""
        try:
            async with asyncio.timeout(_DROP_TIMEOUT_S):
                await handle.drop_instances.remote()
        except Exception as error:
            _logger.debug("A worker actor did not drop its instances: %r", error)
        finally:
            skate.kill(handle)


def _call_options_fn(options_fn: Any) -> dict[str, Any]:
    """Return the options that the user's function returns now."""
    return {} if options_fn is None else dict(options_fn())
