"""The scheduler: the assignment of tasks to workers, and the number of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skate._base.object_ref import SHARED
from skate._engine.common import feasibility
from skate._engine.common.resources import UNIT, Pool, to_units
from skate._engine.common.states import QUEUED, RUNNING
from skate._engine.local.state import awaited_tasks, exits
from skate._engine.local.state.records import (
    ACTOR,
    HOST,
    IDLE,
    LEASED,
    LEAVING,
    STARTING,
    Actor,
    Key,
    Peer,
    SchedulingClass,
    Task,
    Template,
)
from skate._engine.local.state.starts import Starts
from skate._engine.local.state.tasks_ahead import RECALL_TIMEOUT_S, TasksAhead, update_mean
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from skate._engine.local.state.machine import Machine

IDLE_WORKER_TIMEOUT_S = 60.0  # seconds to keep an idle worker beyond the number of CPUs
OVER = "was submitted by a worker whose job has ended."  # why a task can never run


class Scheduler:
    """Leases workers to scheduling classes and sends them tasks."""

    def __init__(self, machine: Machine, pool: Pool) -> None:
        self._machine = machine
        self._send = machine.send
        self.pool = pool
        self.classes: dict[tuple[object, ...], SchedulingClass] = {}
        self.templates: dict[int, Template] = {}
        self._last_template = 0
        self.waiting: dict[SchedulingClass, None] = {}  # classes with queued tasks
        self._idle: dict[Key, list[Peer]] = {}
        self._ahead = TasksAhead(machine)
        # Cancelled by force on a worker with other tasks, and since when.
        self._force_cancelled: list[tuple[float, Task]] = []
        self._awaited = awaited_tasks.AwaitedTasks(machine)
        self._served_actors: set[Key] = set()  # kinds whose last idle worker became an actor
        self.groups_wait = False  # whether placement groups wait for resources
        self._changed = False
        self.max_workers = max(4, pool.total.get("CPU", 0) // UNIT)
        self.starts = Starts(machine, self.max_workers)

    # ------------------------------------------------------------ templates

    def define(self, source: int, number: int, spec: m.TaskTemplate) -> None:
        """Resolve a submitter's template."""
        peer = self._machine.peers[source]
        request = to_units(spec.resources)
        key = (peer.job, spec.environment, tuple(sorted(request.items())), spec.group, spec.bundle)
        cls = self.classes.get(key)
        if cls is None:
            cls = SchedulingClass(peer.job, spec.environment, request, spec.group, spec.bundle)
            self.classes[key] = cls
        self._last_template += 1
        mine = self._last_template
        template = Template(mine, spec, cls, self._why_impossible(peer, spec, cls))
        self.templates[mine] = template
        peer.templates[number] = template

    def _why_impossible(self, peer: Peer, spec: m.TaskTemplate, cls: SchedulingClass) -> str:
        """Return why tasks of a template can never run; empty when they can."""
        machine = self._machine
        if peer.killed and machine.job_info[peer.job]["ended"]:
            return OVER
        why = feasibility.why_not_on_node(spec, machine.node_id, machine.labels)
        if why:
            return why
        if spec.group:
            return machine.groups.why_impossible(spec.group, spec.bundle, cls.request)
        return feasibility.why_not_in_pool(spec, cls.request, self.pool)

    def group_gone(self, group: bytes, why: str) -> None:
        """Mark the templates of a removed placement group as infeasible."""
        for template in self.templates.values():
            if template.spec.group == group:
                template.impossible = why

    def forget_job(self, job: bytes) -> None:
        """Drop the data of an ended job without processes."""
        self.classes = {key: cls for key, cls in self.classes.items() if cls.job != job}
        self.templates = {
            key: template for key, template in self.templates.items() if template.cls.job != job
        }
        self._idle = {key: idle for key, idle in self._idle.items() if key[0] != job}
        self._served_actors = {key for key in self._served_actors if key[0] != job}
        self.starts.forget_job(job)
        self._machine.preloads.forget_job(job)

    # ------------------------------------------------------------ queues

    def enqueue(self, task: Task, *, front: bool = False) -> None:
        """Queue a task for a worker."""
        task.state = QUEUED
        cls = task.template.cls
        if front or task.sequence < 0:
            awaited_tasks.insert_in_front(cls.queue, task)
        else:
            cls.queue.append(task)
        self.waiting[cls] = None
        self._changed = True

    def enqueue_many(self, tasks: list[Task]) -> None:
        """Queue new tasks of one class."""
        for task in tasks:
            task.state = QUEUED
        cls = tasks[0].template.cls
        cls.queue.extend(tasks)
        self.waiting[cls] = None
        self._changed = True

    def remove(self, task: Task) -> None:
        """Remove a task from its queue."""
        if task.state is QUEUED:
            cls = task.template.cls
            try:
                cls.queue.remove(task)
            except ValueError:
                return
            if not cls.queue:
                self.waiting.pop(cls, None)
            self._changed = True  # an actor that no idle worker may host may have blocked the queue

    def settle(self) -> None:
        """Send every task that can run now."""
        if not self._changed:
            return
        self._changed = False
        waiting = self.waiting
        if waiting:
            order = list(waiting)
            if len(order) > 1:
                order.sort(key=self._precedence)
            for cls in order:
                self._place(cls)
                if not cls.queue:
                    del waiting[cls]
        if self._ahead:
            self._recall_for_idle()

    def _precedence(self, cls: SchedulingClass) -> tuple[bool, int]:
        """Return a key that sorts the oldest class first, but lets tasks take turns with a long queue of actors.

        An actor keeps its worker, and the next one takes a while to start: tasks would wait for all of them.
        """
        head = cls.queue[0]
        return (head.actor is not None and cls.key in self._served_actors, head.sequence)

    def _place(self, cls: SchedulingClass) -> None:
        queue = cls.queue
        key = cls.key
        idle = self._idle.get(key)
        while queue:
            pool = self._pool_for(cls)
            if pool is None:
                break
            if not idle:
                self.starts.begin_for(cls, pool)
                break
            task = queue[0]
            peer = idle.pop() if task.actor is None else _take_without_handle(idle, task.actor)
            if peer is None:
                self.starts.begin_for(cls, pool)
                break
            queue.popleft()
            peer.grant = pool.take(cls.request)
            if task.actor is not None:
                self._served_actors.add(key)
                self._machine.actors.begin(task, peer)
                continue
            self._served_actors.discard(key)
            peer.state = LEASED
            peer.lease = cls
            cls.leased[peer.number] = peer
            peer.head_since = self._machine.now
            self._run(peer, task)
        if queue and cls.leased and queue[0].template.per_worker > 1 and not self._others_first(cls):
            self._ahead.send(cls, self._run)

    def _recall_for_idle(self) -> None:
        idle = {key: len(peers) for key, peers in self._idle.items() if peers}
        if idle:
            self._ahead.recall_for(idle, lambda cls: self._pool_for(cls) is not None)

    def _pool_for(self, cls: SchedulingClass) -> Pool | None:
        """Return the pool that can run the next task of the class now."""
        if cls.group:
            return self._machine.groups.pool_for(cls.group, cls.bundle, cls.request)
        return self.pool if self.pool.fits(cls.request) else None

    def _run(self, peer: Peer, task: Task) -> None:
        template = task.template
        if template.number not in peer.defined:
            self.introduce(peer, template)
        task.state = RUNNING
        task.worker = peer
        peer.tasks[task.id] = task
        if task.private and not task.attempt and (peer.grant is None or not peer.grant.devices):
            run = self._machine.last_sent(peer.number, m.RunMany)
            if run is None or run.template != template.number or run.depth != task.depth:
                run = m.RunMany(template.number, [], [], task.depth)
                self._send(peer.number, run)
            run.tasks.append(task.id)
            run.args.append(task.args)
            return
        self._send(peer.number, self.run_message(peer, task))
        if task.consumed is not None:
            self._send(peer.number, task.consumed)

    def introduce(self, peer: Peer, template: Template) -> None:
        """Send a worker a template with its code, once."""
        peer.defined.add(template.number)
        code = self._machine.functions.get(template.spec.function, b"")
        self._send(peer.number, m.Define(template.number, template.spec, code))

    def run_message(self, peer: Peer, task: Task) -> m.Run:
        """Return the message that runs a task."""
        arguments = self._arguments(peer, task) if task.dependencies or task.args_object else []
        grant = peer.grant
        return m.Run(
            task.id,
            task.template.number,
            task.args,
            arguments,
            task.args_object,
            grant.device_ids() if grant is not None and grant.devices else {},
            task.attempt,
            task.depth,
        )

    def _arguments(self, peer: Peer, task: Task) -> list[m.Argument]:
        machine = self._machine
        objects = machine.directory.objects
        arguments = []
        for slot, id in task.dependencies:
            obj = objects[id]
            if obj.state == SHARED:
                machine.store.pin(peer.number, [id])
                arguments.append(m.Argument(slot, SHARED, b"", id))
            else:
                arguments.append(m.Argument(slot, obj.state, obj.data))
        if task.args_object:
            machine.store.pin(peer.number, [task.args_object])
        return arguments

    # ------------------------------------------------------------ workers

    def prestart(self, job: bytes) -> None:
        """Start a worker for a job in advance."""
        self.starts.begin((job, "", False))

    def worker_ready(self, peer: Peer) -> None:
        """Handle the readiness of a started worker."""
        if peer.killed:
            # It could not be killed while its environment was being prepared.
            self._send(HOST, m.KillProcess(peer.number))
            return
        self.starts.succeeded(peer)
        self._add_idle(peer)

    def worker_failed_to_start(
        self, peer: Peer, code: int | None, lines: list[str], refused: str = ""
    ) -> None:
        """Handle a worker that died before it was ready, or that the system refused to start."""
        self._changed = True
        if refused:
            self.starts.refused(peer, refused)
        else:
            self.starts.failed(peer, code, lines)

    def environment_failed(self, environment: str, error: bytes) -> None:
        """Fail all work that needs a runtime environment which could not be created."""
        actors = self._machine.actors
        for key in {c.key for c in self.classes.values() if c.environment == environment}:
            self.starts.forget(key)
            self.starts.fail_queued(key, error, lambda actor: actors.creation_failed(actor, error))

    def queued_tasks(self, key: Key) -> list[Task]:
        """Return the tasks that wait for a worker of one kind."""
        return [task for cls in self.waiting if cls.key == key for task in cls.queue]

    def has_room(self, task: Task) -> bool:
        """Return whether the resources of a task are free, so that it only waits for a worker."""
        return self._pool_for(task.template.cls) is not None

    def _add_idle(self, peer: Peer) -> None:
        peer.state = IDLE
        peer.idle_since = self._machine.now
        self._idle.setdefault(peer.key, []).append(peer)
        self._changed = True

    def task_over(self, peer: Peer, task: Task, seconds: float, *, leaves: bool = False) -> None:
        """Handle the end of a task: give the worker the next one, or end its lease."""
        update_mean(task.template, seconds)
        if leaves:
            self.retire(peer)
            tasks, peer.tasks = peer.tasks, {}
            for unstarted in reversed(tasks.values()):
                self._machine.tasks.requeue(unstarted, front=True)
            return
        self.tasks_over(peer, task.template.cls)

    def tasks_over(self, peer: Peer, cls: SchedulingClass) -> None:
        """Give a worker that has finished tasks of a class the next ones, or end its lease."""
        peer.head_since = self._machine.now
        if len(peer.tasks) <= 1:
            self._ahead.forget(peer)
        if peer.tasks:
            if cls.queue and len(peer.tasks) <= cls.queue[0].template.per_worker // 2:
                self._changed = True
            return
        self._continue_lease(peer, cls)

    def _continue_lease(self, peer: Peer, cls: SchedulingClass) -> None:
        """Give a leased worker without tasks the next task of its class, or end the lease."""
        queue = cls.queue
        if queue and peer.state is LEASED and queue[0].actor is None and not self._others_first(cls):
            self._run(peer, queue.popleft())
            if not queue:
                self.waiting.pop(cls, None)
            else:
                self._changed = True
            return
        self._end_lease(peer)
        if peer.state is LEASED:
            self._add_idle(peer)

    def _others_first(self, cls: SchedulingClass) -> bool:
        """Return whether an older task or a placement group waits, which a long queue must not starve."""
        if self.groups_wait:
            return True
        if len(self.waiting) < 2:
            return False
        mine = cls.queue[0].sequence
        return any(
            other.queue[0].sequence < mine for other in self.waiting if other is not cls and other.queue
        )

    def _end_lease(self, peer: Peer) -> None:
        if peer.lease is not None:
            peer.lease.leased.pop(peer.number, None)
            peer.lease = None
        if peer.grant is not None:
            peer.grant.give_back()
            peer.grant = None
            self._changed = True

    def retire(self, peer: Peer) -> None:
        """Stop sending tasks to a worker that ends."""
        self._end_lease(peer)
        self._forget_idle(peer)
        if peer.state is STARTING:
            self.starts.ended(peer)
        self._ahead.forget(peer)
        if peer.state is not ACTOR:
            peer.state = LEAVING
        self._changed = True

    def _forget_idle(self, peer: Peer) -> None:
        idle = self._idle.get(peer.key)
        if idle and peer in idle:
            idle.remove(peer)

    def resources_changed(self) -> None:
        """Schedule again, because resources were returned."""
        self._changed = True

    # ------------------------------------------------------------ blocked workers, recalled tasks

    def blocked(self, source: int, message: m.Blocked) -> None:
        """Handle a worker that waits for objects: lend its CPUs to others."""
        peer = self._machine.peers[source]
        peer.blocked += 1
        peer.waiting_on[message.task] = message.objects
        if message.timed:
            peer.timed.add(message.task)
        else:
            self._machine.deadlocks.suspect(source)
        # Actors keep their resources.
        if peer.grant is not None and peer.blocked == 1 and peer.state is LEASED:
            peer.grant.lend_cpus()
            self._awaited.put_first(message.objects)
            self._changed = True

    def unblocked(self, source: int, message: m.Unblocked) -> None:
        """Handle a blocked worker that continues."""
        peer = self._machine.peers[source]
        peer.blocked = max(0, peer.blocked - 1)
        peer.waiting_on.pop(message.task, None)
        peer.timed.discard(message.task)
        if peer.grant is not None and peer.blocked == 0:
            peer.grant.regain_cpus()

    def handed_back(self, source: int, returned: list[bytes]) -> None:
        """Queue the tasks that a worker has not started."""
        peer = self._machine.peers[source]
        for id in reversed(returned):
            task = peer.tasks.pop(id, None)
            if task is not None:
                self._machine.tasks.requeue(task, front=True)
        self._ahead.watch(peer)  # more may have been sent while these were being returned
        if not peer.tasks and peer.lease is not None:
            self._continue_lease(peer, peer.lease)

    def tick(self) -> None:
        """Recall tasks that wait behind a long one, kill force-cancelled tasks, and end idle workers."""
        now = self._machine.now
        if self._ahead:
            self._ahead.recall_late()
            self._recall_for_idle()
        if self._force_cancelled:
            self._kill_force_cancelled(now)
        if self.starts.tick():
            self._changed = True
        self._reap(now)

    def force_cancel(self, task: Task) -> None:
        """Kill the worker of a cancelled task once it runs that task, but not while it runs another.

        The worker has a moment to send the results that it holds back: the task may have ended.
        """
        self._force_cancelled.append((self._machine.now, task))

    def _kill_force_cancelled(self, now: float) -> None:
        force_cancelled, self._force_cancelled = self._force_cancelled, []
        for since, task in force_cancelled:
            peer = task.worker
            if peer is None or task.id not in peer.tasks:
                continue
            if next(iter(peer.tasks)) == task.id and now - max(since, peer.head_since) >= RECALL_TIMEOUT_S:
                self._machine.kill(peer, exits.FORCED)
            else:
                self._force_cancelled.append((since, task))

    def _reap(self, now: float) -> None:
        for key, idle in self._idle.items():
            keep = self._idle_limit(key)
            while len(idle) > keep and now - idle[0].idle_since >= IDLE_WORKER_TIMEOUT_S:
                peer = idle.pop(0)
                peer.state = LEAVING
                peer.killed = exits.IDLE
                self._send(peer.number, m.Exit("idle"))

    def next_tick(self) -> float | None:
        """Return the seconds until `tick` should be called, None for never."""
        if self._ahead or self._force_cancelled:
            return RECALL_TIMEOUT_S
        wait = self.starts.next_tick()
        if wait is not None:
            return wait
        for key, idle in self._idle.items():
            if idle and len(idle) > self._idle_limit(key):
                return IDLE_WORKER_TIMEOUT_S
        return None

    def _idle_limit(self, key: Key) -> int:
        """Return the number of idle workers to keep; none for an ended job."""
        return 0 if self._machine.job_info[key[0]]["ended"] else self.max_workers

    def idle_workers(self) -> list[Peer]:
        """Return the idle workers."""
        return [peer for idle in self._idle.values() for peer in idle]


def _take_without_handle(idle: list[Peer], actor: Actor) -> Peer | None:
    """Remove and return a worker without a handle to the actor: hosting it would keep it alive."""
    for position in reversed(range(len(idle))):
        if actor.handle not in idle[position].holds:
            return idle.pop(position)
    return None
