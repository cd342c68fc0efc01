"""The lifecycle of actors: creation, names, restarts, death."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from skate._base import ids
from skate._base.ids import CREATION, handle_id
from skate._base.object_ref import ERROR
from skate._engine.common import failures
from skate._engine.common.states import (
    ALIVE,
    DEAD,
    FAILED,
    FINISHED,
    PENDING_CREATION,
    QUEUED,
    RESTARTING,
    RUNNING,
    WAITING,
)
from skate._engine.local.session.task_progress import run_id
from skate._engine.local.state import exits
from skate._engine.local.state.records import ACTOR, Actor, Object, Peer, Task
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from skate._engine.local.state.machine import Machine


class Actors:
    """Holds the table of actors and their names."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._send = machine.send
        self.table: dict[bytes, Actor] = {}
        self.names: dict[tuple[str, str], Actor] = {}

    # ------------------------------------------------------------ creation

    def create(self, source: int, message: m.CreateActor) -> None:
        """Create an actor, unless its name is taken."""
        machine = self._machine
        peer = machine.peers[source]
        options = message.options
        if options.name:
            key = (options.namespace, options.name)
            taken = self.names.get(key)
            if taken is not None:
                if options.get_if_exists:
                    machine.answer(source, message.request, self.describe(taken))
                else:
                    taken_error = failures.actor_name_taken(options.name, options.namespace)
                    machine.refuse(source, message.request, failures.value_error(taken_error))
                return
        template = peer.templates[message.template]
        actor = Actor(message.actor, options, source, peer.job, handle_id(message.actor))
        actor.template = template
        actor.class_name = template.spec.name
        actor.created = machine.now
        actor.watchers.add(source)
        self.table[actor.id] = actor
        if options.name:
            self.names[(options.namespace, options.name)] = actor
        handle = machine.directory.objects.get(actor.handle) or Object(actor.handle, source)
        machine.directory.objects[actor.handle] = handle
        handle.made = True
        handle.holders.add(source)
        peer.holds.add(actor.handle)
        if options.detached:
            handle.internal += 1
        task = machine.tasks.new(CREATION + actor.id, template, source)
        task.actor = actor
        task.args = message.args
        task.parent = message.parent
        actor.creation = task
        if message.request:
            machine.answer(source, message.request, self.describe(actor))
        machine.tasks.add_arguments(task, message.dependencies, message.contains, message.args_object)
        if template.impossible:
            self.creation_failed(
                actor, failures.unschedulable(template.spec.name, template.impossible, actor=True)
            )
        elif not task.unresolved and task.state is WAITING and actor.state is PENDING_CREATION:
            machine.tasks.enqueue(task)

    def begin(self, task: Task, peer: Peer) -> None:
        """Turn a worker into the actor."""
        actor = task.actor
        assert actor is not None
        machine = self._machine
        peer.state = ACTOR
        peer.actor = actor
        peer.head_since = machine.now
        peer.tasks[task.id] = task
        task.state = RUNNING
        task.worker = peer
        actor.worker = peer
        actor.pid = peer.pid
        if task.template.number not in peer.defined:
            machine.scheduler.introduce(peer, task.template)
        run = machine.scheduler.run_message(peer, task)
        self._send(peer.number, m.Become(actor.id, run, actor.options, actor.restarts))

    def created(self, task: Task, peer: Peer, message: m.Done) -> None:
        """Handle the end of the constructor."""
        actor = task.actor
        assert actor is not None
        task.started = message.started
        state = FAILED if message.results[0].state == ERROR else FINISHED
        self._machine.tasks.record(task, state, message.seconds, peer, message.failed)
        if message.results[0].state == ERROR:
            peer.killed = exits.CONSTRUCTOR
            self.creation_failed(actor, message.results[0].data, recorded=True)
            return
        actor.state = ALIVE
        actor.repr = message.repr
        actor.incarnation += 1
        if actor.options.max_restarts == 0:
            self._machine.tasks.forget(task)
            actor.creation = None
        self._announce(actor)

    def creation_failed(
        self, actor: Actor, error: bytes, failed: str | None = None, *, recorded: bool = False
    ) -> None:
        """Fail the creation of an actor, and notify its callers of the reason.

        Args:
            actor: The actor.
            error: The error. It may contain classes of the user, which only callers can unpickle, never the node.
            failed: Its description in the history of tasks, if the node cannot read the error.
            recorded: Whether the history has this attempt of the constructor.
        """
        actor.no_restart = True
        self._die(actor, error, "creation failed", failed=failed, recorded=recorded)

    def did_not_start(self, actor: Actor, peer: Peer, code: int | None, lines: list[str]) -> None:
        """Fail an actor whose worker processes ended before they were ready."""
        why = f"The actor's worker could not start. {peer.info.get('failed', '')}".rstrip()
        self.creation_failed(actor, self._death_error(actor, why, peer=peer, code=code, lines=lines))

    def has_no_process(self, actor: Actor, why: str) -> None:
        """Fail an actor whose process the system refused to start."""
        self.creation_failed(actor, self._death_error(actor, f"The actor's worker could not start. {why}"))

    # ------------------------------------------------------------ notifying callers

    def watch(self, source: int, id: bytes) -> None:
        """Send `source` the state of the actor, now and on every change."""
        actor = self.table.get(id)
        if actor is None:
            why = "This session has no such actor. It might be dead or it's from a different cluster or session."
            error = failures.actor_died(id, "", "", why)
            self._send(source, m.ActorUpdate(id, DEAD, error=error))
            return
        actor.watchers.add(source)
        self._send(source, self._update(actor))

    def _update(self, actor: Actor) -> m.ActorUpdate:
        address = actor.worker.address if actor.worker is not None and actor.state is ALIVE else ""
        return m.ActorUpdate(actor.id, actor.state, address, actor.incarnation, actor.error, actor.reason)

    def _announce(self, actor: Actor) -> None:
        update = self._update(actor)
        for number in actor.watchers:
            self._send(number, update)

    def describe(self, actor: Actor) -> dict[str, object]:
        """Return the data that a process needs for a handle."""
        return {
            "actor": actor.id,
            "metadata": actor.options.metadata,
            "state": actor.state,
            "name": actor.options.name,
            "namespace": actor.options.namespace,
        }

    # ------------------------------------------------------------ ending

    def kill(self, id: bytes, *, no_restart: bool) -> None:
        """Kill the actor's process; it may restart unless `no_restart`."""
        actor = self.table.get(id)
        if actor is None or actor.state is DEAD:
            return
        actor.no_restart = actor.no_restart or no_restart
        reason = "The actor is dead because it was killed by `ray.kill`."
        if not no_restart and actor.worker is None and actor.creation is not None:
            return  # it has no process yet, or is restarting already
        if no_restart or actor.worker is None:
            self._die(actor, self._death_error(actor, reason), reason)
        else:
            self._machine.kill(actor.worker, reason)

    def exited(self, id: bytes, reason: str) -> None:
        """Handle the exit of an actor by itself."""
        actor = self.table.get(id)
        if actor is None or actor.state is DEAD:
            return
        actor.no_restart = True
        self._die(actor, self._death_error(actor, reason), reason, kill=False)

    def worker_gone(
        self, peer: Peer, code: int | None, lines: list[str], last_begun: bytes | None = None
    ) -> None:
        """Handle the end of the actor's process: restart the actor, or mark it as dead.

        `last_begun` is the last attempt that the process had started. If that is not the constructor, the actor has
        lost nothing, and a new process does not count as a restart.
        """
        actor = peer.actor
        assert actor is not None
        actor.worker = None
        if actor.state is DEAD:
            return
        task = actor.creation
        if (
            task is not None
            and task.id in peer.tasks
            and not actor.no_restart
            and last_begun not in (None, run_id(task.id, task.attempt))
        ):
            self._machine.tasks.requeue(task)
            return
        limit = actor.options.max_restarts
        if not actor.no_restart and (limit < 0 or actor.restarts < limit) and actor.creation is not None:
            actor.restarts += 1
            actor.state = RESTARTING
            task = actor.creation
            task.attempt += 1
            self._machine.tasks.requeue(task)
            if actor.state is RESTARTING:
                self._announce(actor)
            return
        why = peer.killed or "The actor died unexpectedly before finishing this task."
        died = self._death_error(
            actor, why, peer=peer, code=code, lines=lines, over_memory=bool(peer.over_memory)
        )
        self._die(actor, died, why)

    def _death_error(
        self,
        actor: Actor,
        reason: str,
        *,
        peer: Peer | None = None,
        code: int | None = None,
        lines: Sequence[str] = (),
        over_memory: bool = False,
    ) -> bytes:
        return failures.actor_died(
            actor.id,
            actor.class_name,
            actor.options.name,
            reason,
            pid=peer.pid if peer is not None else (actor.pid or None),
            code=code,
            lines=lines,
            over_memory=over_memory,
        )

    def _die(
        self,
        actor: Actor,
        error: bytes,
        reason: str,
        *,
        kill: bool = True,
        failed: str | None = None,
        recorded: bool = False,
    ) -> None:
        if actor.state is DEAD:
            return
        constructed = recorded or actor.state is ALIVE
        actor.state = DEAD
        actor.error = error
        actor.reason = reason
        actor.ended = self._machine.now
        key = (actor.options.namespace, actor.options.name)
        if self.names.get(key) is actor:
            del self.names[key]
        task = actor.creation
        actor.creation = None
        if task is not None:
            if task.state is QUEUED:
                self._machine.scheduler.remove(task)
            if task.worker is not None:
                task.worker.tasks.pop(task.id, None)
            task.state = FAILED
            if not constructed:
                text = failures.describe(error) if failed is None else failed
                self._machine.tasks.record(task, FAILED, 0.0, task.worker, text)
            self._machine.tasks.forget(task)
        worker = actor.worker
        if worker is not None and kill:
            self._machine.kill(worker, reason)
        self._announce(actor)
        if actor.options.detached:
            self._machine.directory.release_inside([actor.handle])
        self._machine.job_may_be_over(actor.job)

    # ------------------------------------------------------------ handles

    def is_handle(self, id: bytes) -> bool:
        """Return whether an object id stands for the handles of an actor."""
        return id.startswith(CREATION)

    def handle_dropped(self, obj: Object) -> None:
        """Free a handle object that only the actor itself holds: its own handle does not keep it alive."""
        if obj.internal > 0 or not self.is_handle(obj.id):
            return
        actor = self.table.get(obj.id[8 : 8 + ids.ACTOR_SIZE])
        if actor is not None and actor.worker is not None and obj.holders == {actor.worker.number}:
            actor.worker.holds.discard(obj.id)
            self._machine.directory.free(obj)

    def handle_gone(self, obj: Object) -> bool:
        """End an actor without handles after the calls that it has received."""
        if not self.is_handle(obj.id):
            return False
        actor = self.table.get(obj.id[8 : 8 + ids.ACTOR_SIZE])
        if actor is None or actor.state is DEAD:
            return True
        actor.no_restart = True
        if actor.state is ALIVE and actor.worker is not None:
            worker = actor.worker
            worker.killed = failures.OUT_OF_SCOPE
            self._die(
                actor, self._death_error(actor, failures.OUT_OF_SCOPE), failures.OUT_OF_SCOPE, kill=False
            )
            self._send(worker.number, m.Exit("out of scope"))
        else:
            self._die(actor, self._death_error(actor, failures.OUT_OF_SCOPE), failures.OUT_OF_SCOPE)
        return True

    def owner_gone(self, number: int) -> None:
        """End the non-detached actors that a worker created, as in Ray."""
        for actor in list(self.table.values()):
            if actor.owner == number and not actor.options.detached and actor.state is not DEAD:
                actor.no_restart = True
                reason = "The actor ended because the process that created it has ended."
                self._die(actor, self._death_error(actor, reason), reason)

    def job_gone(self, job: bytes) -> None:
        """End the non-detached actors of an ended job."""
        for actor in list(self.table.values()):
            if actor.job == job and not actor.options.detached and actor.state is not DEAD:
                actor.no_restart = True
                reason = failures.JOB_ENDED
                self._die(actor, self._death_error(actor, reason), reason)

    def group_gone(self, group: bytes) -> None:
        """End the actors in a removed placement group."""
        for actor in list(self.table.values()):
            if actor.template is not None and actor.template.spec.group == group and actor.state is not DEAD:
                actor.no_restart = True
                self._die(actor, failures.group_removed(actor=True), exits.GROUP_REMOVED)
