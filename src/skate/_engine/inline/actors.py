"""Actors of the inline engine: instances in this process with the lifecycle of separate processes."""

from __future__ import annotations

import inspect
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from skate._base import errors as exceptions
from skate._base import ids
from skate._base.accelerators import device_variables
from skate._base.exports import ActorTemplate
from skate._base.ids import CREATION
from skate._base.object_ref import ObjectRef
from skate._base.serialization import loads
from skate._engine.abc import CreatedActor
from skate._engine.common import error_types, failures
from skate._engine.common.calls import concurrency_groups, repr_of_actor
from skate._engine.common.outcomes import ExitRequest, creation_error, run_without_loop, task_error
from skate._engine.common.resources import Grant
from skate._engine.common.states import ALIVE, DEAD, PENDING_CREATION, RESTARTING
from skate._engine.common.traced_calls import traced_method
from skate._engine.inline.calls import WORKER, Arguments, Invocation
from skate._engine.inline.context import Running, Spec, current
from skate._engine.inline.environments import ProcessSettings, fatal_exceptions
from skate._engine.inline.execution import Execution
from skate._engine.inline.objects import Objects, Value, WeakHold
from skate._engine.inline.progress import Progress
from skate._engine.inline.scheduler import Scheduler
from skate._engine.inline.tasks import make_spec

if TYPE_CHECKING:
    from skate._engine.inline.coroutines import Coroutines
    from skate._engine.inline.loops import ActorLoop
    from skate._engine.inline.methods import MethodCall, Methods

DEFAULT_GROUP = ""
KILLED = "The actor is dead because it was killed by `kill`."
EXITED = "The actor exited by exit_actor()."


class SelfKilled(SystemExit):
    """Raised in the method of an actor that killed itself."""


class Actor:
    """An actor: its instance, its options, and its calls."""

    def __init__(self, id: bytes, template: ActorTemplate, spec: Spec, namespace: str) -> None:
        options = template.options
        self.id = id
        self.template = template
        self.spec = spec
        self.class_name = template.export.name
        self.name = options.name or ""
        self.namespace = options.namespace or namespace
        running = current.get()
        # The actor that created it; it dies with that actor.
        self.owner = b"" if running is None or running.actor is None else running.actor.id
        self.is_detached = False
        self.is_async = template.is_async
        self.limits = {
            DEFAULT_GROUP: options.effective_max_concurrency(is_async=template.is_async),
            **concurrency_groups(options),
        }
        self.in_order = not template.is_unordered
        self.state = PENDING_CREATION
        self.reason = ""
        self.repr = ""
        self.error: Value | None = None
        self.restarts = 0
        self.no_restart = False
        self.leaving = False  # ends after the calls that it has received
        self.created = time.time()
        self.ended = 0.0
        self.kind: Any = None
        self.instance: Any = None
        self.creation: Invocation | None = None
        self.grant: Grant | None = None
        self.settings = ProcessSettings({})
        self.loop: ActorLoop | None = None
        self.held: ObjectRef[Any] | None = None  # a detached actor holds itself
        # Calls: queued per caller while arguments are pending, then ready, then running.
        self.queues: dict[bytes, deque[MethodCall]] = {}
        self.ready: deque[MethodCall] = deque()
        self.running: dict[str, int] = dict.fromkeys(self.limits, 0)
        self.calls: dict[bytes, MethodCall] = {}

    def group_of(self, method: str, chosen: str | None) -> str:
        """Return the concurrency group that a call runs in."""
        declared = getattr(getattr(self.kind, method, None), "__ray_concurrency_group__", None)
        group = chosen or declared or DEFAULT_GROUP
        if group not in self.limits:
            known = ", ".join(repr(name) for name in self.limits if name) or "none"
            raise ValueError(
                f"{self.class_name}.{method} cannot run in the concurrency group {group!r}: the actor's groups are "
                f"{known}. Declare it with @remote(concurrency_groups=...)."
            )
        return group

    def new_running(self, task: bytes, name: str) -> Running:
        """Return the context of code that runs in the actor."""
        running = Running(task, name, self.spec, actor=self)
        running.grant = self.grant
        return running

    def row(self) -> dict[str, Any]:
        """Return the actor's row for the state API."""
        lives = self.state == ALIVE
        return {
            "actor_id": self.id,
            "class_name": self.class_name,
            "state": self.state,
            "name": self.name,
            "namespace": self.namespace,
            "job_id": self.id[-ids.JOB_SIZE :],
            "pid": os.getpid() if self.restarts or self.state in (ALIVE, DEAD) else 0,
            "worker_id": WORKER if lives else 0,
            "num_restarts": self.restarts,
            "is_detached": self.is_detached,
            "required_resources": self.spec.resources,
            "death_cause": self.reason,
            "address": "",
            "repr_name": self.repr,
            "start_time": self.created,
            "end_time": self.ended,
            **self.spec.columns(),
        }


class Actors:
    """Creates, names, restarts and ends actors."""

    def __init__(
        self,
        objects: Objects,
        progress: Progress,
        scheduler: Scheduler,
        execution: Execution,
        factory: ids.IdFactory,
        namespace: str,
        *,
        default_lifetime: str,
        make_methods: Callable[[Actors], Methods],
        record: Callable[[Invocation], None],
    ) -> None:
        self._objects = objects
        self._progress = progress
        self._scheduler = scheduler
        self._execution = execution
        self._ids = factory
        self._namespace = namespace
        self.table: dict[bytes, Actor] = {}
        self.names: dict[tuple[str, str], Actor] = {}
        self._default_lifetime = default_lifetime
        self.methods = make_methods(self)
        self._coroutines: Coroutines | None = None
        self.record = record  # adds an ended call to the history

    @property
    def coroutines(self) -> Coroutines:
        """The runner of asynchronous actors, created for the first one because asyncio takes long to import."""
        if self._coroutines is None:
            from skate._engine.inline.coroutines import Coroutines

            self._coroutines = Coroutines(self._objects, self._progress, self._execution, self)
            self.methods.start_coroutine = self._coroutines.start
        return self._coroutines

    # ------------------------------------------------------------ creation

    def create(self, template: ActorTemplate, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CreatedActor:
        """Create an actor, or find the existing one where `get_if_exists` allows it."""
        options = template.options
        namespace = options.namespace or self._namespace
        taken = self.names.get((namespace, options.name)) if options.name else None
        if taken is not None:
            if options.effective_get_if_exists:
                return CreatedActor(taken.id, None, False)
            raise ValueError(failures.actor_name_taken(options.name or "", namespace))
        spec = make_spec(
            template.export, options, self._execution.environments.merge_job_environment(options.runtime_env)
        )
        actor = Actor(self._ids.actor(), template, spec, self._namespace)
        name = f"{actor.class_name}.__init__"
        arguments = Arguments(self._objects, args, kwargs, name)
        actor.kind = loads(template.export.code)
        actor.creation = call = Invocation(
            self._objects, CREATION + actor.id, name, "ACTOR_CREATION_TASK", spec, arguments
        )
        running = current.get()
        call.parent = b"" if running is None else running.task
        self.table[actor.id] = actor
        if actor.name:
            self.names[(actor.namespace, actor.name)] = actor
        hold = self._objects.hold(actor.id)
        actor.is_detached = (options.lifetime or self._default_lifetime) == "detached"
        if actor.is_detached:
            actor.held = hold
        if arguments.when_complete(lambda: self._progress.add(lambda: self._place(actor))):
            self._place(actor)
        return CreatedActor(actor.id, hold, True)

    def _place(self, actor: Actor) -> None:
        """Create the instance, unless the actor has to wait for resources."""
        call = actor.creation
        if call is None or actor.state is DEAD:
            return
        assert call.arguments is not None
        broken = call.arguments.broken()
        if broken is not None:
            self._creation_failed(actor, loads(broken.data))
            return
        why = self._scheduler.why_impossible(actor.spec)
        if why:
            error = failures.unschedulable(actor.class_name, why, actor=True)
            self._creation_failed(actor, loads(error))
            return
        with self._scheduler.lend_cpus():
            grant = self._scheduler.take(actor.spec)
            if grant is None:
                self._scheduler.wait(actor.id, actor.spec, lambda grant: self._begin(actor, grant))
            else:
                self._begin(actor, grant)

    def _begin(self, actor: Actor, grant: Grant) -> None:
        actor.grant = grant
        if actor.state is DEAD:
            self._give_back(actor)
            return
        environments = self._execution.environments
        try:
            actor.settings = environments.settings_for(
                actor.spec.environment, device_variables(grant.device_ids())
            )
        except exceptions.RuntimeEnvSetupError as error:
            self._creation_failed(actor, error)
            return
        self._construct(actor)

    def _construct(self, actor: Actor) -> None:
        """Run the constructor, for the first time or after a restart."""
        call = actor.creation
        assert call is not None
        call.begin(actor.new_running(call.id, call.name))
        if actor.is_async:
            self.coroutines.construct(actor)
            return
        try:
            with self._execution.isolate(actor.settings):
                error = Context().run(run_without_loop, self.instantiate(actor))
        except fatal_exceptions():
            self.interrupted(actor)
            raise
        self.constructed(actor, error)

    def interrupted(self, actor: Actor) -> None:
        """End an actor whose constructor was interrupted, for example by Ctrl-C."""
        self.die(actor, self.death_error(actor, "Its constructor was interrupted."), "interrupted")

    def constructed(self, actor: Actor, error: BaseException | None) -> None:
        """Handle the end of the constructor."""
        call = actor.creation
        if call is None:  # the actor was killed meanwhile
            return
        call.ended = time.time()
        if error is None:
            self._created(actor)
        elif isinstance(error, ExitRequest):
            self.die(actor, self.death_error(actor, EXITED), EXITED)
        else:
            call.error_type = error_types.EXECUTION
            cause = task_error(error, call.name, actor.instance, actor.id)
            self._creation_failed(actor, cause)

    @staticmethod
    async def instantiate(actor: Actor) -> BaseException | None:
        """Create the instance with the actor's process settings; return the exception of its constructor."""
        call = actor.creation
        assert call is not None
        assert call.arguments is not None
        current.set(call.running)
        try:
            args, kwargs = call.arguments.load()
            actor.instance = actor.kind.__new__(actor.kind)
            construct = traced_method(actor.instance.__init__, actor.class_name, "__init__")
            returned = construct(*args, **kwargs)
            if actor.is_async and inspect.isawaitable(returned):
                await returned
        except fatal_exceptions():
            raise
        except BaseException as error:
            return error
        return None

    def _created(self, actor: Actor) -> None:
        if actor.state is DEAD:  # it was killed while its constructor ran
            return
        actor.state = ALIVE
        actor.repr = repr_of_actor(actor.instance, actor.class_name)
        assert actor.creation is not None
        actor.creation.state = "FINISHED"
        self.record(actor.creation)
        if actor.template.options.effective_max_restarts == 0:
            actor.creation = None  # releases the arguments
        self.methods.pump(actor)
        self.end_if_left(actor)

    def _creation_failed(self, actor: Actor, cause: BaseException) -> None:
        assert actor.creation is not None
        actor.creation.state = "FAILED"
        self.record(actor.creation)
        error = creation_error(cause, actor.id, actor.class_name)
        self.die(actor, Value.error(error), "creation failed")

    # ------------------------------------------------------------ handles

    def hold(self, id: bytes) -> Any:
        """Return the reference that keeps an actor alive for an unpickled handle."""
        running = current.get()
        if running is not None and running.actor is not None and running.actor.id == id:
            return WeakHold(self._objects, id)
        return self._objects.hold(id)

    def handles_gone(self, id: bytes) -> None:
        actor = self.table.get(id)
        if actor is not None and actor.state is not DEAD:
            actor.leaving = True
            self.end_if_left(actor)

    def end_if_left(self, actor: Actor) -> None:
        """End an actor without handles after the calls that it has received."""
        if actor.leaving and not actor.calls and actor.state is not DEAD:
            self.leave(actor, failures.OUT_OF_SCOPE)

    # ------------------------------------------------------------ ending

    def kill(self, id: bytes, *, no_restart: bool) -> None:
        """Kill an actor; it may restart unless `no_restart`."""
        actor = self.table.get(id)
        if actor is None or actor.state is DEAD:
            return
        running = current.get()
        self.lose(actor, KILLED, no_restart=no_restart)
        if running is not None and running.actor is actor:
            raise SelfKilled(1)

    def lose(self, actor: Actor, reason: str, *, no_restart: bool = False, code: int | None = None) -> None:
        """Restart an actor whose process would have ended, or mark it as dead."""
        actor.no_restart = actor.no_restart or no_restart
        limit = actor.template.options.effective_max_restarts
        may_restart = limit < 0 or actor.restarts < limit
        if actor.no_restart or not may_restart or actor.creation is None:
            self.die(actor, self.death_error(actor, reason, code=code), reason)
            return
        actor.restarts += 1
        actor.state = RESTARTING
        actor.creation.attempt += 1
        self.methods.lost(actor)
        self._drop_instance(actor)
        actor.settings.changed = None
        self._end_owned(actor)
        self._construct(actor)

    def leave(self, actor: Actor, reason: str) -> None:
        """End an actor in an orderly way, after its cleanup."""
        if actor.state is DEAD:
            return
        closer = getattr(actor.instance, "__ray_shutdown__", None)
        if callable(closer):
            try:
                with self._execution.isolate(actor.settings):
                    Context().run(self._shut_down, actor, closer)
            except Exception:
                logging.getLogger("skate").exception("__ray_shutdown__ of %s failed", actor.class_name)
        self.die(actor, self.death_error(actor, reason), reason)

    @staticmethod
    def _shut_down(actor: Actor, closer: Callable[[], None]) -> None:
        current.set(actor.new_running(CREATION + actor.id, f"{actor.class_name}.__ray_shutdown__"))
        closer()

    def death_error(self, actor: Actor, reason: str, *, code: int | None = None) -> Value:
        """Return the error of calls to a dead actor."""
        return Value.failure(
            failures.actor_died(actor.id, actor.class_name, actor.name, reason, pid=os.getpid(), code=code)
        )

    def die(self, actor: Actor, error: Value, reason: str) -> None:
        """Mark an actor as dead: fail its calls and release its resources."""
        if actor.state is DEAD:
            return
        actor.state = DEAD
        actor.error = error
        actor.reason = reason
        actor.ended = time.time()
        if self.names.get((actor.namespace, actor.name)) is actor:
            del self.names[(actor.namespace, actor.name)]
        actor.creation = actor.held = None
        self._scheduler.forget(actor.id)
        for call in list(actor.calls.values()):
            self.methods.fail(actor, call, error)
        self._drop_instance(actor)
        self._give_back(actor)
        self._end_owned(actor)

    def _end_owned(self, owner: Actor) -> None:
        """End the actors that an actor created, as the end of its process would."""
        reason = f"The actor {owner.class_name} that created this one has died."
        for actor in list(self.table.values()):
            if actor.owner == owner.id and actor.state is not DEAD and actor.held is None:
                self.die(actor, self.death_error(actor, reason), reason)

    def _drop_instance(self, actor: Actor) -> None:
        actor.instance = None
        loop, actor.loop = actor.loop, None
        if loop is not None:
            loop.close()

    def _give_back(self, actor: Actor) -> None:
        grant, actor.grant = actor.grant, None
        if grant is not None:
            self._scheduler.give(grant)

    def group_gone(self, group: bytes) -> None:
        """End the actors in a removed placement group."""
        error = Value.failure(failures.group_removed(actor=True))
        for actor in list(self.table.values()):
            if actor.spec.group == group and actor.state is not DEAD:
                self.die(actor, error, "its placement group was removed")

    def close(self) -> None:
        """End all actors."""
        for actor in list(self.table.values()):
            reason = failures.JOB_ENDED
            self.die(actor, self.death_error(actor, reason), reason)
