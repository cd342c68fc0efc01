"""The inline engine: all work runs in this process, in the calling thread, for debuggers and tests.

A program behaves as on the local engine, except where that needs more than one process or thread:

- A task runs to its end inside `.remote()`. Waiting for something that the caller does afterwards raises
  `DeadlockError`, as does every other wait that would never end.
- Calls of an actor do not overlap, even with `max_concurrency`, unless they are coroutines or one calls the other.
- A generator runs while it is read.
- Ctrl-C and the `quit` of a debugger reach the caller. `sys.exit` in a task counts as the death of a worker; `os._exit`
  and a crash in native code end the program.
- Environment variables and the working folder are restored after each call; all other state of a process (module
  globals, signal handlers, random state) is shared with the driver.
- `runtime_env` cannot install packages.
- Coroutines and timers run only during `get`, `wait`, `await` and `.remote()`.
"""

from __future__ import annotations

import atexit
import os
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from skate._base import errors as exceptions
from skate._base import ids
from skate._base.exports import ActorTemplate, MethodInfo, TaskFunction
from skate._base.generator import ObjectRefGenerator
from skate._base.memory import total as memory
from skate._base.object_ref import ObjectRef
from skate._base.options import MethodOptions
from skate._base.serialization import serialize
from skate._engine.abc import (
    ActorDescription,
    ActorIdentity,
    CreatedActor,
    Engine,
    EngineContext,
    Handle,
    Returns,
    Table,
)
from skate._engine.common import failures, session_folders, session_roots
from skate._engine.common.machine_facts import OBJECT_STORE_SHARE, node_labels, resources
from skate._engine.common.outcomes import ExitRequest, serialize_put
from skate._engine.common.tables import group_table, node_row
from skate._engine.common.traced_calls import choose_class
from skate._engine.inline.actors import Actor, Actors
from skate._engine.inline.calls import WORKER, Arguments, Invocation
from skate._engine.inline.context import current
from skate._engine.inline.drivers import WaitDrivers
from skate._engine.inline.environments import Environments, check_supported
from skate._engine.inline.execution import Execution
from skate._engine.inline.groups import Group
from skate._engine.inline.methods import MethodCall, Methods
from skate._engine.inline.objects import Objects, Value
from skate._engine.inline.progress import Progress
from skate._engine.inline.scheduler import Scheduler
from skate._engine.inline.streams import Stream
from skate._engine.inline.tasks import Tasks
from skate._engine.inline.views import Views
from skate._engine.inline.waiting import Waiting


class InlineEngine(Engine):
    """Implements the engine interface without another process."""

    name = "inline"

    def __init__(
        self,
        total: dict[str, float],
        devices: dict[str, list[str]],
        labels: dict[str, str],
        namespace: str,
        environment: dict[str, Any],
        metadata: dict[str, Any],
    ) -> None:
        self.job = ids.JobID.from_int(1).binary()
        self.node = secrets.token_bytes(ids.UNIQUE_SIZE)
        self.namespace = namespace
        self.metadata = metadata
        check_supported(environment)
        name = f"inline-{os.getpid()}-{secrets.token_hex(3)}"
        self.session, self._claim = session_folders.make(session_roots.root(), name)
        factory = ids.IdFactory(WORKER, self.job, self.node)
        self._ids = factory
        self.environments = Environments(environment, self.session)
        self.progress = Progress()
        self.drivers = WaitDrivers(self.progress)
        self.objects = Objects(
            self.progress,
            factory,
            get=self.get,
            on_awaited=self._awaited,
            on_handles_gone=lambda actor: self.actors.handles_gone(actor),
        )
        self.scheduler = Scheduler(self.progress, self.node, total, devices, labels)
        self._execution = Execution(self.objects, self.environments, self.progress.lock)
        self.tasks = Tasks(
            self.objects, self.progress, self.scheduler, self._execution, factory, self._stream
        )
        self.actors = Actors(
            self.objects,
            self.progress,
            self.scheduler,
            self._execution,
            factory,
            namespace,
            default_lifetime=str(metadata.get("default_actor_lifetime", "")),
            make_methods=lambda actors: Methods(
                self.objects, self.progress, self.scheduler, self._execution, factory, actors, self._stream
            ),
            record=self.tasks.record,
        )
        self.methods = self.actors.methods
        self.views = Views(self)
        self._waiting = Waiting(
            self.objects, self.progress, self.scheduler, self.methods, self.views, self._maker
        )
        self.objects.install()
        self._at_shutdown: list[Callable[[], None]] = []
        atexit.register(self.shutdown)

    def _stream(self, call: Invocation) -> Stream:
        return Stream(
            self.objects,
            self.progress,
            call.id,
            call.name,
            call.window,
            begin_wait=self.drivers.begin,
            reasons=lambda: self.views.explain_call(call),
        )

    def _awaited(self, reference: ObjectRef[Any]) -> None:
        """Let other code drive the engine while a coroutine or callback waits for a reference."""
        end = self.drivers.begin()
        if end is not None:
            self.objects.watch(reference, lambda _: end())

    def _settle_down(self) -> None:
        """Run all ready work after a call from outside of tasks."""
        if current.get() is None:
            self.progress.run_ready()

    # ------------------------------------------------------------ objects

    def put(self, value: Any) -> ObjectRef[Any]:
        """Store a value."""
        self.objects.check_open()
        return self.objects.put(serialize_put(value))

    def get(self, references: list[ObjectRef[Any]], timeout: float | None) -> list[Any]:
        """Return the values of references; raise the first error."""
        return self._waiting.get(references, timeout)

    def get_one(self, reference: ObjectRef[Any], timeout: float | None) -> Any:
        """Return the value of a reference."""
        return self._waiting.get([reference], timeout)[0]

    def wait(
        self, references: list[Any], num_returns: int, timeout: float | None, fetch_local: bool = True
    ) -> tuple[list[Any], list[Any]]:
        """Split references and generators into at most `num_returns` ready ones and the rest."""
        return self._waiting.wait(references, num_returns, timeout)

    def free(self, references: Sequence[ObjectRef[Any]]) -> None:
        """Drop the values of references now."""
        self.objects.check(references)
        for reference in references:
            self.objects.free(reference)

    # ------------------------------------------------------------ tasks

    def submit(self, function: TaskFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Returns:
        """Run a task."""
        self.objects.check_open()
        result: Returns = self.tasks.submit(function, args, kwargs)
        self._settle_down()
        return result

    def cancel(self, reference: ObjectRef[Any], *, force: bool, recursive: bool) -> None:
        """Cancel the task or call that makes an object."""
        self.objects.check([reference])
        self.cancel_task(ids.task_of(reference._id), force=force, recursive=recursive)

    def cancel_generator(self, generator: ObjectRefGenerator[Any], *, force: bool, recursive: bool) -> None:
        """Cancel the task or call that makes the items of a generator."""
        self.cancel_task(generator._stream.task, force=force, recursive=recursive)

    def cancel_task(self, task: bytes, *, force: bool, recursive: bool) -> None:
        """Cancel a task or call."""
        if force and ids.actor_of(task) is not None:
            raise ValueError("force=True is not supported for actor tasks: use skate.kill to end the actor.")
        actor, call = self._maker(task)
        if call is None:
            return
        children = list(call.running.children) if recursive and call.running is not None else []
        if isinstance(call, MethodCall) and actor is not None:
            self.methods.cancel(actor, call)
        else:
            self.tasks.cancel(call)
        for child in children:
            self.cancel_task(child, force=False, recursive=True)
        self._settle_down()

    def is_cancelled(self) -> bool:
        """Return whether the running task was cancelled."""
        running = current.get()
        return running is not None and running.cancelled

    def _maker(self, task: bytes) -> tuple[Actor | None, Invocation | None]:
        """Return the unfinished task or call with this id, and its actor."""
        id = ids.actor_of(task)
        if id is None:
            return None, self.tasks.table.get(task)
        actor = self.actors.table.get(id)
        return actor, None if actor is None else actor.calls.get(task)

    # ------------------------------------------------------------ actors

    def create_actor(
        self, template: ActorTemplate, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> CreatedActor:
        """Create an actor, or find the existing one where `get_if_exists` allows it."""
        self.objects.check_open()
        created = self.actors.create(template, args, kwargs)
        self._settle_down()
        return created

    def ship_actor(self, actor: bytes, keep: object) -> None:
        """Record that a handle is pickled."""
        if keep is not None:
            keep.__reduce__()

    def hold_actor(self, actor: bytes, carried: object, *, weak: bool) -> object:
        """Return what keeps an actor alive for an unpickled handle; None if `weak`."""
        return None if weak else self.actors.hold(actor)

    def call(
        self,
        actor: bytes,
        method: MethodInfo,
        options: MethodOptions,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        handle: Handle,
        *,
        retries: int = 0,
        limit: int = -1,
        unordered: bool = False,
    ) -> Returns:
        """Call a method of an actor, and keep the handle until the call has ended."""
        self.objects.check_open()
        found = self.actors.table.get(actor)
        if found is None:
            raise exceptions.ActorHandleNotFoundError(failures.foreign_handle(actor))
        if 0 < limit <= len(found.calls):
            raise exceptions.PendingCallsLimitExceeded(
                f"The actor has {len(found.calls)} calls pending, and max_pending_calls is {limit}: get some of the "
                "results before calling again."
            )
        arguments = Arguments(self.objects, args, kwargs, method.name)
        result: Returns = self.methods.submit(found, method, options, arguments, handle, retries)
        self._settle_down()
        return result

    def kill(self, actor: bytes, *, no_restart: bool) -> None:
        """Kill an actor."""
        self.objects.check_open()
        if actor not in self.actors.table:
            raise exceptions.ActorHandleNotFoundError(failures.foreign_handle(actor))
        self.actors.kill(actor, no_restart=no_restart)
        self._settle_down()

    def find_actor(self, name: str, namespace: str | None) -> tuple[bytes, ActorDescription]:
        """Return the id and the description of a named actor; raise ValueError if none has the name."""
        where = namespace or self.namespace
        actor = self.actors.names.get((where, name))
        if actor is None:
            raise ValueError(failures.no_such_actor(name, where))
        return actor.id, ActorDescription.of(actor.template)

    def named_actors(self, *, all_namespaces: bool) -> list[dict[str, str]]:
        """Return the name and the namespace of each living named actor."""
        return [
            {"name": name, "namespace": namespace}
            for namespace, name in list(self.actors.names)
            if all_namespaces or namespace == self.namespace
        ]

    def describe_own_actor(self) -> ActorDescription:
        """Return the description of the actor that the calling code belongs to."""
        actor = self._actor()
        assert actor is not None
        return ActorDescription.of(actor.template)

    def actor_name(self) -> str:
        """Return the name of the actor that the calling code belongs to, "" if it has none."""
        actor = self._actor()
        return "" if actor is None else actor.name

    def actor_restarts(self) -> int:
        """Return how often the actor that the calling code belongs to was restarted."""
        actor = self._actor()
        return 0 if actor is None else actor.restarts

    def exit_actor(self) -> None:
        """End the actor that the calling code belongs to, by an exception that passes through user code."""
        if self._actor() is None:
            raise TypeError("exit_actor API is called on a non-actor worker: only an actor can exit itself.")
        running = current.get()
        assert running is not None
        running.exiting = True  # even if user code catches the exception
        raise ExitRequest(0)

    @staticmethod
    def _actor() -> Actor | None:
        running = current.get()
        return None if running is None else running.actor

    # ------------------------------------------------------------ placement groups

    def create_placement_group(
        self,
        bundles: list[dict[str, float]],
        strategy: str,
        name: str,
        lifetime: str | None,
        labels: list[dict[str, str]],
    ) -> bytes:
        """Create a placement group without waiting for its resources; return its id."""
        self.objects.check_open()
        group = Group(self._ids.group(), bundles, strategy)
        group.name = name
        group.namespace = self.namespace
        group.detached = lifetime == "detached"
        self.scheduler.groups.create(group, labels)
        return group.id

    def remove_placement_group(self, id: bytes) -> None:
        """End the work that runs in a group, and release its resources."""
        self.objects.check_open()
        self.actors.group_gone(id)
        self.tasks.group_gone(id)
        if self.scheduler.groups.remove(id):
            self.scheduler.retry()
        self._settle_down()

    def placement_group_ready(self, id: bytes, value: object) -> ObjectRef[Any]:
        """Return a reference that becomes `value` once the group's resources are reserved."""
        self.objects.check_open()
        reference = self.objects.new(ids.object_id(self._ids.task(), 1))
        made = self.objects.store(serialize(value))
        group = self.scheduler.groups.table.get(id)

        def look() -> None:
            if group is None or group.state == "REMOVED":
                error = failures.group_removed(actor=False)
            elif group.impossible:
                error = failures.unschedulable("The placement group", group.impossible)
            elif group.state == "CREATED":
                self.objects.settle(reference, made)
                return
            else:
                group.watchers.append(look)
                group.waiting.add(reference._id)
                return
            self.objects.settle(reference, Value.failure(error))

        look()
        return reference

    def placement_group_table(self) -> dict[str, dict[str, Any]]:
        """Return all groups by id, in the shape of Ray's table."""
        return group_table(self.scheduler.groups.rows(self.job), self.node)

    def find_placement_group(self, name: str, namespace: str | None) -> bytes | None:
        """Return the id of the group with this name, or None."""
        group = self.scheduler.groups.find(name, namespace or self.namespace)
        return None if group is None else group.id

    def current_placement_group(self) -> bytes | None:
        """Return the id of the group that the running task or actor is in, or None."""
        running = current.get()
        return None if running is None else running.template.group or None

    # ------------------------------------------------------------ the node and this process

    def context(self) -> EngineContext:
        """Return the task and the actor that the calling code runs in."""
        running = current.get()
        actor = self._actor()
        return EngineContext(
            worker=WORKER,
            job=self.job,
            node=self.node,
            session=self.session,
            namespace=self.namespace,
            labels=self.scheduler.labels,
            task=None if running is None else running.describe(),
            actor=None if actor is None else ActorIdentity(actor.id, actor.class_name, actor.is_async),
            accelerators={} if running is None else running.resources,
            runtime_env=self.environments.job if running is None else running.template.environment,
        )

    @property
    def is_worker(self) -> bool:
        """Whether the calling code runs in a task or an actor."""
        return current.get() is not None

    def resources(self) -> dict[str, float]:
        """Return all resources of the node."""
        return self.scheduler.total

    def available(self) -> dict[str, float]:
        """Return the resources that are not in use."""
        free = self.scheduler.available
        left = free.pop("object_store_memory", 0.0) - self.objects.used()
        return {**free, "object_store_memory": left} if left > 0 else free

    def nodes(self) -> list[dict[str, Any]]:
        """Return the one node in the shape of Ray's table."""
        return [node_row(self.node, self.session, self.resources(), self.scheduler.labels)]

    def state(self, table: Table) -> list[dict[str, Any]]:
        """Return the rows of a table."""
        return self.views.table(table)

    def object_store(self) -> dict[str, int]:
        """Return the size and the usage of the object store."""
        return self.views.memory()

    def why(self, reference: ObjectRef[Any]) -> list[str]:
        """Explain what a reference waits for, one step per line."""
        self.objects.check([reference])
        return self.views.why([reference])

    def on_shutdown(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the engine is shut down."""
        self._at_shutdown.append(callback)

    def shutdown(self) -> None:
        """End the session."""
        atexit.unregister(self.shutdown)
        if self.objects.closed:
            return
        for callback in self._at_shutdown:
            callback()
        self.actors.close()
        self.objects.close("shutdown() was called")
        self.drivers.close()
        self.progress.close()
        session_folders.remove(self.session)
        os.close(self._claim)


def start(
    *,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    custom: dict[str, float] | None = None,
    namespace: str | None = None,
    runtime_env: dict[str, Any] | None = None,
    labels: dict[str, str] | None = None,
    object_store_memory: int | None = None,
    metadata: dict[str, Any] | None = None,
) -> InlineEngine:
    """Start a session in this process.

    Args:
        num_cpus: CPUs to count; by default those that this process may use.
        num_gpus: GPUs to count; by default those found.
        custom: Custom resources by name.
        namespace: The namespace of named actors; by default a namespace of the session's own.
        runtime_env: Environment of all tasks and actors.
        labels: Labels of the node.
        object_store_memory: Bytes that `cluster_resources` reports; by default a share of memory. Not a limit.
        metadata: Metadata of the job.

    Raises:
        RuntimeEnvSetupError: The environment needs processes of its own.
    """
    total, devices = resources(num_cpus, num_gpus, custom, None)
    total["object_store_memory"] = float(object_store_memory or int(memory() * OBJECT_STORE_SHARE))
    metadata = metadata or {}
    kind = choose_class(InlineEngine, metadata)
    return kind(
        total,
        devices,
        node_labels(labels, total),
        namespace or secrets.token_hex(16),
        runtime_env or {},
        metadata,
    )
