"""Runs a plan on workers: a thread with an event loop starts tasks, reads what they make, and tells the scheduler."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Any

import skate
from skate.data._exec import interruption as interruptions
from skate.data._exec import meter
from skate.data._exec.actor_pool import ActorPool, PoolActor
from skate.data._exec.items import Item, Report
from skate.data._exec.operators import Operator
from skate.data._exec.scheduler import Cancel, Instruction, Resume, Scheduler, Start, StartActor, StopActor
from skate.data._exec.tasks import OnMade, Task, Work
from skate.data._exec.worker import (
    BACKPRESSURE_OBJECTS,
    HOST,
    WorkerActor,
    WorkHandle,
    hold,
    run_task,
    with_preloading,
)


class WorkerDriver:
    """Drives a scheduler in a thread of its own; the consumer takes items from it."""

    def __init__(
        self, scheduler: Scheduler, on_made: OnMade, instructions: list[Instruction] | None = None
    ) -> None:
        self.scheduler = scheduler
        self._on_made = on_made
        self._changed = threading.Condition()  # guards the scheduler
        self._error: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._readers: dict[Task, asyncio.Task[None]] = {}
        self._starting: dict[PoolActor, asyncio.Task[None]] = {}
        self._generators: dict[Task, Any] = {}
        self._resumed: dict[Task, asyncio.Event] = {}
        self._work_handles: dict[int, tuple[WorkHandle, Work]] = {}
        self._functions: dict[tuple[Operator, bool], Any] = {}
        self._closed = False
        self._first = instructions
        self._thread = threading.Thread(target=self._run, name="skate-data", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------ the consumer's side

    def next(self) -> Item | None:
        """Return the next item, as soon as there is one; None at the end."""
        interruption = interruptions.current()
        interruption.waits_at(self._changed)
        with self._changed:
            while True:
                interruption.check()
                if self._error is not None:
                    raise self._error
                item, instructions = self.scheduler.take()
                if instructions:
                    self._loop.call_soon_threadsafe(self._perform, instructions)
                if item is not None or self.scheduler.finished:
                    return item
                self._changed.wait()

    def close(self) -> None:
        """Stop everything, and wait until it has stopped."""
        if self._closed:
            return
        self._closed = True
        self._loop.call_soon_threadsafe(self._finish)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.call_soon(self._begin)
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _begin(self) -> None:
        if self._first is None:
            self._tell(self.scheduler.begin)
        else:
            self._perform(self._first)

    def _finish(self) -> None:
        with self._changed:
            instructions = self.scheduler.stop()
        self._perform(instructions)
        running = [*self._readers.values(), *self._starting.values()]
        for each in running:
            each.cancel()
        waiting = asyncio.gather(*running, return_exceptions=True)
        waiting.add_done_callback(lambda _: self._loop.stop())

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            if self._error is None:
                self._error = error
            self._changed.notify_all()

    def _tell(self, event: Callable[..., list[Instruction]], *args: Any) -> None:
        """Tell the scheduler what has happened, and do what it says."""
        with self._changed:
            try:
                instructions = event(*args)
            except (
                Exception
            ) as error:  # what the scheduler finds wrong with the data is the consumer's to know
                self._error = self._error or error
                instructions = []
            self._changed.notify_all()
        self._perform(instructions)

    def _perform(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            try:
                self._do(instruction)
            except Exception as error:  # the consumer is the one to judge it
                self._fail(error)
                return

    def _do(self, instruction: Instruction) -> None:
        match instruction:
            case Start(task):
                self._readers[task] = self._loop.create_task(self._read(task, self._submit(task)))
            case Resume(task):
                if task in self._resumed:
                    self._resumed[task].set()
            case Cancel(task):
                reader = self._readers.get(task)
                if reader is not None:
                    reader.cancel()
            case StartActor(pool, member):
                self._starting[member] = self._loop.create_task(self._start_actor(pool, member))
            case StopActor(member):
                if member.handle is not None:
                    skate.kill(member.handle)
                elif member in self._starting:
                    self._starting[member].cancel()

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
        """Return the remote function of an operator's tasks; it is made once, unless its options may change."""
        found = self._functions.get((operator, borrows))
        if found is None:
            options = {"name": operator.name, **operator.options, **_asked(operator.options_fn)}
            if borrows:
                options["num_cpus"] = 0
            found = run_task.options(**with_preloading(options))
            if operator.options_fn is None:
                self._functions[operator, borrows] = found
        return found

    def _work_handle(self, work: Work) -> WorkHandle:
        """Return what a worker finds a work by; it fetches the work only if it does not have it."""
        found = self._work_handles.get(id(work))
        if found is None:
            # The work itself is kept too, so that no other gets its id.
            found = self._work_handles[id(work)] = hold(work), work
        return found[0]

    async def _read(self, task: Task, generator: Any) -> None:
        """Read what a task makes, until its end."""
        reader = asyncio.current_task()
        try:
            async for reference in generator:
                report = await self._report(generator, reference)
                item = Item.of(reference, report)
                if self._on_made(task, item, report):
                    self._tell(self._made, task, item, report)
                if reader is not None and reader.cancelling():
                    # What it made was enough for somebody: that ends it before its actor's end looks like an error.
                    await asyncio.sleep(0)
                if task.paused:
                    resumed = self._resumed[task] = asyncio.Event()
                    await resumed.wait()
            self._tell(self._ended, task)
        except asyncio.CancelledError:
            skate.cancel(generator)
            raise
        except Exception as error:  # the consumer is the one to judge it
            self._fail(error)
        finally:
            self._readers.pop(task, None)
            self._generators.pop(task, None)
            self._resumed.pop(task, None)

    def _made(self, task: Task, item: Item, report: Report) -> list[Instruction]:
        if (report.host, report.process) != (HOST, os.getpid()):
            self.scheduler.update_memory((report.host, report.process), report.memory)
        self._look_again()
        return self.scheduler.made(task, item)

    def _ended(self, task: Task) -> list[Instruction]:
        self._look_again()
        return self.scheduler.ended(task)

    def _look_again(self) -> None:
        """If memory is short, ask how much of it workers have now: a report is of the time when a block was made."""
        if not self.scheduler.short_of_memory:
            return
        for host, process in list(self.scheduler.memory_of):
            if host == HOST:
                self.scheduler.update_memory((host, process), meter.memory_of(process) or 0)

    async def _report(self, generator: Any, block: Any) -> Report:
        """Return the report that follows a block."""
        try:
            following = await anext(generator)
        except StopAsyncIteration:
            await block  # no block, but the error that ended the task
            raise
        report: Report = await following
        return report

    async def _start_actor(self, pool: ActorPool, member: PoolActor) -> None:
        try:
            options = {**pool.options, **_asked(pool.options_fn)}
            handle = (
                skate.remote(WorkerActor)
                .options(**with_preloading(options))
                .remote(self._work_handle(pool.actor))
            )
            await handle.ready.remote()
            self._tell(self.scheduler.actor_started, member, handle)
        except Exception as error:  # the consumer is the one to judge it
            self._fail(error)
        finally:
            self._starting.pop(member, None)


def _asked(options_fn: Any) -> dict[str, Any]:
    """Return the options that a user's function gives at this moment."""
    return {} if options_fn is None else dict(options_fn())
