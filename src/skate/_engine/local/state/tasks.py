"""The lifecycle of tasks: submission, dependencies, results, retries, cancellation, generators."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from skate._base import ids
from skate._base.object_ref import ERROR
from skate._engine.common import error_types, failures
from skate._engine.common.states import FAILED, FINISHED, QUEUED, RUNNING, TASK_HISTORY, WAITING
from skate._engine.local.session.task_progress import run_id
from skate._engine.local.state import exits
from skate._engine.local.state.private_results import PrivateResults
from skate._engine.local.state.records import HOST, FinishedTask, Object, Peer, Task, Template
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from skate._engine.local.state.machine import Machine

# Seconds before a task is retried once more; the first retry is immediate, and the delay doubles from the second on.
SECOND_RETRY_DELAY_S = 0.05
MAX_RETRY_DELAY_S = 1.0
FIRST_OOM_DELAY_S = 1.0  # seconds before a task that was ended for its memory is retried; doubles each time
MAX_OOM_DELAY_S = 60.0


class Tasks:
    """The table of unfinished tasks, and the history of finished ones."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._send = machine.send
        self.table: dict[bytes, Task] = {}
        self.history: deque[FinishedTask] = deque(maxlen=TASK_HISTORY)
        self.counts: dict[str, int] = {}  # finished tasks by state, with those that are no longer kept
        self.private_results = PrivateResults(machine)
        self._sequence = 0
        self.memory_retries: dict[bytes, int] = {}  # retries of a task after memory ran out
        self._delayed: list[tuple[float, Task]] = []  # when to queue them

    # ------------------------------------------------------------ submission

    def submit(self, source: int, message: m.Submit) -> None:
        """Handle the submission of a task."""
        machine = self._machine
        peer = machine.peers[source]
        template = peer.templates[message.template]
        id, parent = message.task, message.parent
        self._sequence += 1
        task = self.table[id] = Task(
            id, template, source, self._sequence, machine.now, message.args, parent, message.depth
        )
        count = template.spec.num_returns
        declare = machine.directory.declare
        if count == 1:
            declare(id + ids.FIRST_INDEX, source)
        elif count == m.DYNAMIC:
            declare(ids.object_id(task.id, 1), source)
        else:
            for index in range(1, count + 1):
                declare(ids.object_id(task.id, index), source)
        if parent:
            submitter = self.table.get(parent)
            if submitter is not None:
                if submitter.children is None:
                    submitter.children = []
                submitter.children.append(id)
        if message.dependencies or message.contains or message.args_object:
            self.add_arguments(task, message.dependencies, message.contains, message.args_object)
            if task.state is not WAITING:
                return  # one of its arguments is an error
        if template.impossible:
            self.fail(task, failures.unschedulable(template.spec.name, template.impossible))
        elif not task.unresolved:
            machine.scheduler.enqueue(task)

    def submit_many(self, source: int, message: m.SubmitMany) -> None:
        """Handle the submission of tasks without references, whose results are private to their owner."""
        machine = self._machine
        template = machine.peers[source].templates[message.template]
        parent, depth, now = message.parent, message.depth, machine.now
        table = self.table
        sequence = self._sequence
        tasks = []
        for id, args in zip(message.tasks, message.args, strict=True):
            sequence += 1
            task = table[id] = Task(id, template, source, sequence, now, args, parent, depth)
            task.private = True
            tasks.append(task)
        self._sequence = sequence
        submitter = table.get(parent) if parent else None
        if submitter is not None:
            if submitter.children is None:
                submitter.children = []
            submitter.children += message.tasks
        if template.impossible:
            for task in tasks:
                self.fail(task, failures.unschedulable(template.spec.name, template.impossible))
        else:
            machine.scheduler.enqueue_many(tasks)

    def new(self, id: bytes, template: Template, owner: int) -> Task:
        """Create the record of a task."""
        self._sequence += 1
        task = self.table[id] = Task(id, template, owner, self._sequence, self._machine.now)
        return task

    def add_arguments(
        self,
        task: Task,
        dependencies: list[tuple[int | str, bytes]],
        contains: list[bytes],
        args_object: bytes,
    ) -> None:
        """Hold the arguments of a task, and wait for pending ones."""
        directory = self._machine.directory
        task.dependencies = dependencies
        task.contains = contains
        task.args_object = args_object
        broken = None
        for _, id in dependencies:
            if directory.watch(task, id):
                task.unresolved += 1
            else:
                obj = directory.objects[id]
                if obj.state == ERROR:
                    broken = obj
        if contains:
            directory.hold_inside(contains)
        if args_object:
            directory.hold_inside([args_object])
        if broken is not None:
            self._fail_with_dependency(task, broken)

    def dependency_ready(self, task: Task, obj: Object) -> None:
        """Handle a dependency of a task that is ready."""
        if task.state is not WAITING:
            return
        if obj.state == ERROR:
            self._fail_with_dependency(task, obj)
            return
        task.unresolved -= 1
        if not task.unresolved:
            self.enqueue(task)

    def _fail_with_dependency(self, task: Task, obj: Object) -> None:
        # Not the text of the error, which may need the modules of the user to be read.
        failed = f"{error_types.EXECUTION}\nThe task did not run: its argument {obj.id.hex()} is an error."
        if task.actor is not None:
            self._machine.actors.creation_failed(task.actor, obj.data, failed)
        else:
            self.fail(task, obj.data, failed)

    def enqueue(self, task: Task) -> None:
        """Queue a task whose arguments are ready."""
        self._machine.scheduler.enqueue(task)

    # ------------------------------------------------------------ results

    def done(self, source: int, message: m.Done) -> None:
        """Handle the outcome of a task."""
        machine = self._machine
        peer = machine.peers.get(source)
        task = peer.tasks.pop(message.task, None) if peer is not None else None
        if peer is None or task is None:
            for result in message.results:
                machine.directory.discard(result.segment, source)
            return
        if task.actor is not None:
            machine.actors.created(task, peer, message)
            return
        task.started = message.started
        if message.retry and task.retries_left and not task.cancelled:
            if task.retries_left > 0:
                task.retries_left -= 1
            for result in message.results:
                machine.directory.discard(result.segment, source)
            self.record(task, FAILED, message.seconds, peer, message.failed)
            self._again(task)
        else:
            self.complete(task, message.results, source, message.count)
            self.record(task, FAILED if message.failed else FINISHED, message.seconds, peer, message.failed)
        machine.scheduler.task_over(peer, task, message.seconds, leaves=message.last)

    def complete(self, task: Task, results: list[m.Result], source: int, count: int = 0) -> None:
        """Store the results of a task and drop the task."""
        directory = self._machine.directory
        objects = directory.objects
        id = task.id
        if task.private:
            self.private_results.complete(task, results[0], source)
        elif task.template.spec.num_returns == m.STREAMING:
            # A generator ends with its count; an error is one last item, after all items that an earlier attempt may
            # have made.
            if results:
                count = max(count, task.items)
            for result in results:
                count += 1
                self._make_item(task, count, result, source)
            self._end_stream(task, count)
        elif len(results) == 1 == task.template.spec.num_returns:
            obj = objects.get(id + ids.FIRST_INDEX)
            if obj is None:
                directory.discard(results[0].segment, source)
            else:
                directory.fulfil(obj, results[0], source)
        else:
            for index, result in enumerate(results, 1):
                obj = objects.get(ids.object_id(id, index))
                if obj is None:
                    directory.discard(result.segment, source)
                else:
                    directory.fulfil(obj, result, source)
            if len(results) < task.template.spec.num_returns:
                self._fill(task, results)
        self.forget(task)

    def _fill(self, task: Task, results: list[m.Result]) -> None:
        """Give an error to the results that a worker did not send."""
        directory = self._machine.directory
        for index in range(len(results) + 1, task.template.spec.num_returns + 1):
            obj = directory.objects.get(ids.object_id(task.id, index))
            if obj is not None:
                broken = results and results[0].state == ERROR
                directory.fail(obj, results[0].data if broken else failures.object_lost(obj.id))

    def forget(self, task: Task) -> None:
        """Drop a finished task and the holds of its arguments."""
        self.table.pop(task.id, None)
        if self.memory_retries:
            self.memory_retries.pop(task.id, None)
        self.release_arguments(task)

    def release_arguments(self, task: Task) -> None:
        """Release the objects that the arguments of a task refer to."""
        directory = self._machine.directory
        if task.dependencies:
            dependencies, task.dependencies = task.dependencies, ()
            for _, id in dependencies:
                obj = directory.objects.get(id)
                if obj is not None and obj.dependents and task in obj.dependents:
                    obj.dependents.remove(task)
            directory.release_inside([id for _, id in dependencies])
        if task.contains:
            contains, task.contains = task.contains, ()
            directory.release_inside(contains)
        if task.args_object:
            held, task.args_object = task.args_object, b""
            directory.release_inside([held])

    def fail(self, task: Task, error: bytes, failed: str | None = None) -> None:
        """End a task that did not run, or whose worker is gone, with an error for every result.

        Args:
            task: The task.
            error: The error, serialized.
            failed: Its description in the history, if the node cannot read the error.
        """
        self._machine.scheduler.remove(task)
        results = [m.Result(ERROR, error)] * max(1, task.template.spec.num_returns)
        state = task.state
        task.state = FAILED
        self.complete(task, results, HOST, task.items)
        peer = task.worker if state is RUNNING else None
        self.record(task, FAILED, 0.0, peer, failures.describe(error) if failed is None else failed)
        self._machine.job_may_be_over(task.template.cls.job)

    def _again(self, task: Task) -> None:
        """Retry a task: at once, and after that with a growing delay, in which what makes it fail may pass."""
        task.attempt += 1
        retries = task.attempt - self.memory_retries.get(task.id, 0)
        if retries < 2:
            self.requeue(task)
        else:
            self._delay(task, min(MAX_RETRY_DELAY_S, SECOND_RETRY_DELAY_S * 2 ** min(retries - 2, 10)))

    def _delay(self, task: Task, seconds: float) -> None:
        task.worker = None
        task.state = QUEUED
        self._delayed.append((self._machine.now + seconds, task))

    def requeue(self, task: Task, *, front: bool = False) -> None:
        """Queue a task again that a worker had, if it can still run."""
        task.worker = None
        objects = self._machine.directory.objects
        broken = None
        for _, id in task.dependencies:
            if objects[id].state == ERROR:  # freed since the task was sent
                broken = objects[id]
        if task.cancelled:
            self.fail(task, failures.task_cancelled(task.id))
        elif broken is not None:
            self._fail_with_dependency(task, broken)
        else:
            self._machine.scheduler.enqueue(task, front=front)

    def argument_freed(self, obj: Object) -> None:
        """Fail the waiting tasks that depend on a freed value."""
        for task in [t for t in self.table.values() if t.state is QUEUED or t.state is WAITING]:
            if task.id in self.table and any(id == obj.id for _, id in task.dependencies):
                self._fail_with_dependency(task, obj)

    def record(self, task: Task, state: str, seconds: float, peer: Peer | None, failed: str) -> None:
        """Add a finished task to the history, for the state API and the timeline, unless its options disable it."""
        if not task.template.spec.events:
            return
        self.counts[state] = self.counts.get(state, 0) + 1
        number, pid = (0, 0) if peer is None else (peer.number, peer.pid)
        self.history.append(_history_row(task, state, seconds, number, pid, failed))

    def record_finished(self, finished: Sequence[tuple[Task, float]], peer: Peer) -> None:
        """Add tasks that have returned, with their durations, to the history; like `record`, for many."""
        number, pid = peer.number, peer.pid
        rows = [
            _history_row(task, FINISHED, seconds, number, pid, "")
            for task, seconds in finished
            if task.template.spec.events
        ]
        if rows:
            self.counts[FINISHED] = self.counts.get(FINISHED, 0) + len(rows)
            self.history.extend(rows)

    # ------------------------------------------------------------ failures of workers

    def worker_gone(
        self, peer: Peer, code: int | None, lines: list[str], last_begun: bytes | None = None
    ) -> None:
        """Retry or fail the tasks of a dead worker.

        The worker had started them in order up to the attempt `last_begun`, and the results before that one are lost.
        It had started none of them if `last_begun` is another attempt. If it is unknown, the worker was running the
        first one.
        """
        given = list(peer.tasks.values())
        peer.tasks = {}
        if last_begun is None:
            begun = 1
        else:
            runs = [run_id(task.id, task.attempt) for task in given]
            begun = runs.index(last_begun) + 1 if last_begun in runs else 0
        for position, task in enumerate(given):
            if task.cancelled:
                self.fail(task, failures.task_cancelled(task.id))
            elif position >= begun:
                self.requeue(task)
            elif peer.over_memory:
                self._over_memory(task, peer, code, lines)
            elif task.retries_left:
                if task.retries_left > 0:
                    task.retries_left -= 1
                self.record(task, FAILED, 0.0, peer, error_types.WORKER_DIED)
                self._again(task)
            else:
                name = task.template.spec.name
                self.fail(task, failures.worker_crashed(name, peer.pid, code, lines, peer.killed))

    def _over_memory(self, task: Task, peer: Peer, code: int | None, lines: list[str]) -> None:
        """Retry a task that was ended because memory ran out, with a growing delay and without using up its retries."""
        if not self._machine.memory_pressure.may_retry(task.id, task.template.spec.max_retries):
            name = task.template.spec.name
            self.fail(task, failures.out_of_memory(peer.over_memory, name, peer.pid, code, lines))
            return
        self.record(task, FAILED, 0.0, peer, error_types.OUT_OF_MEMORY)
        count = self.memory_retries[task.id] = self.memory_retries.get(task.id, 0) + 1
        task.attempt += 1
        self._delay(task, min(MAX_OOM_DELAY_S, FIRST_OOM_DELAY_S * 2 ** min(count - 1, 10)))

    def tick(self) -> None:
        """Queue the tasks whose delay is over, unless they have ended meanwhile."""
        now = self._machine.now
        due = [task for when, task in self._delayed if when <= now]
        if due:
            self._delayed = [each for each in self._delayed if each[0] > now]
            for task in due:
                if self.table.get(task.id) is task:
                    self.requeue(task)

    def next_tick(self) -> float | None:
        """Return the seconds until the next delay is over; None if no task is delayed."""
        if not self._delayed:
            return None
        return max(0.0, min(when for when, _ in self._delayed) - self._machine.now)

    def owner_gone(self, number: int, *, survives: bool) -> None:
        """Drop queued tasks of an ended process whose results are unreachable, unless they survive its clean exit."""
        objects = self._machine.directory.objects
        mine = [t for t in self.table.values() if t.owner == number and t.actor is None]
        for task in reversed(mine):  # a later one may be the only user of an earlier result
            if task.state is RUNNING or survives:
                if task.template.spec.num_returns == m.STREAMING:
                    self.consumed(m.Consumed(task.id, task.items, closed=True))  # it has no reader any more
                continue
            results = range(1, max(1, task.template.spec.num_returns) + 1)
            if not any(ids.object_id(task.id, index) in objects for index in results):
                self._machine.scheduler.remove(task)
                task.state = FAILED
                self.forget(task)
                self._machine.job_may_be_over(task.template.cls.job)

    def job_gone(self, job: bytes) -> None:
        """End every task of an ended job, except those that a detached actor has submitted."""
        for task in [t for t in self.table.values() if t.template.cls.job == job and t.actor is None]:
            owner = self._machine.peers.get(task.owner)
            if task.id not in self.table or (owner is not None and owner.survives_job()):
                continue
            if task.worker is not None:
                task.worker.tasks.pop(task.id, None)
            self.fail(task, failures.owner_died(ids.object_id(task.id, 1)))

    # ------------------------------------------------------------ cancellation

    def cancel(self, message: m.Cancel) -> None:
        """Cancel a task, and with `recursive` the tasks that it has submitted."""
        if ids.actor_of(message.task) is not None:
            caller = ids.process_of(message.task)
            if caller in self._machine.peers:
                self._send(caller, message)
            return
        pending = [message.task]
        while pending:
            task = self.table.get(pending.pop())
            if task is None or task.actor is not None:
                continue
            worker = task.worker if task.state is RUNNING else None
            if message.recursive and task.children and (message.force or worker is None):
                # Otherwise its worker does that, which alone knows the latest ones, and calls of actors.
                pending += task.children
            if worker is not None:
                task.cancelled = True
                if message.force and len(worker.tasks) == 1:
                    self._machine.kill(worker, exits.FORCED)
                else:
                    recursive = message.recursive and not message.force  # done above
                    self._send(worker.number, m.CancelRunning(task.id, recursive=recursive))
                    if message.force:
                        self._machine.scheduler.force_cancel(task)
            else:
                self.fail(task, failures.task_cancelled(task.id))

    # ------------------------------------------------------------ generators

    def item(self, source: int, message: m.Item) -> None:
        """Handle an object of a generator task."""
        peer = self._machine.peers.get(source)
        task = peer.tasks.get(message.task) if peer is not None else None
        if task is None:
            self._machine.directory.discard(message.result.segment, source)
            return
        if message.index <= task.items:  # made by an earlier attempt
            self._machine.directory.discard(message.result.segment, source)
            return
        task.items = message.index
        self._make_item(task, message.index, message.result, source)

    def _make_item(self, task: Task, index: int, result: m.Result, source: int) -> None:
        if task.owner not in self._machine.peers:
            self._machine.directory.discard(result.segment, source)
            return
        id = ids.object_id(task.id, index)
        obj = self._machine.directory.objects.get(id)
        if obj is not None and obj.state:
            self._machine.directory.discard(result.segment, source)
            return
        obj = self._machine.directory.declare(id, task.owner)
        self._machine.directory.fulfil(obj, result, source)

    def _end_stream(self, task: Task, count: int) -> None:
        if task.owner in self._machine.peers:
            self._send(task.owner, m.Ready(ids.object_id(task.id, 0), 1, total=count))

    def consumed(self, message: m.Consumed) -> None:
        """Forward the progress of a generator's reader to its worker."""
        task = self.table.get(message.task)
        if task is None:
            return
        task.consumed = message  # kept for the worker that will run or retry it
        if task.worker is not None:
            self._send(task.worker.number, message)


def _history_row(task: Task, state: str, seconds: float, number: int, pid: int, failed: str) -> FinishedTask:
    """Return what the history keeps: a plain tuple, because every task pays for it and few are ever looked at."""
    spec, job = task.template.spec, task.template.cls.job
    return (
        task.id,
        spec,
        job,
        state,
        task.created,
        task.started,
        seconds,
        number,
        pid,
        task.attempt,
        failed,
        task.parent,
    )
