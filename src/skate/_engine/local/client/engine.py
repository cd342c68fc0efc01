"""The local engine: worker processes on this machine, as a driver or a worker uses it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from skate._base import errors as exceptions
from skate._base import ids
from skate._base.exports import ActorTemplate, MethodInfo, TaskFunction
from skate._base.generator import ObjectRefGenerator
from skate._base.ids import handle_id
from skate._base.object_ref import ObjectRef
from skate._base.options import MethodOptions
from skate._base.serialization import Serialized, dumps, dumps_plain_call, loads
from skate._engine.abc import (
    ActorDescription,
    ActorIdentity,
    CreatedActor,
    Engine,
    EngineContext,
    Handle,
    Returns,
    Table,
    View,
)
from skate._engine.common import failures
from skate._engine.common.calls import pack_arguments, split_arguments
from skate._engine.common.outcomes import ExitRequest
from skate._engine.common.tables import group_table, node_row
from skate._engine.common.values import INLINE_LIMIT
from skate._engine.local.client.actor_connection import LinkTable, PendingCall
from skate._engine.local.client.client import Client, install, uninstall
from skate._engine.local.client.stream import TaskStream
from skate._engine.local.client.submission import (
    Packed,
    actor_options,
    actor_template,
    begin_task,
    prepare_call,
    submit_private,
    task_template,
    template_number,
)
from skate._engine.local.client.task_context import current_task
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from skate._base.remote_pdb import Breakpoint  # which imports pdb


class LocalEngine(Engine):
    """Implements the engine interface with a client of the node."""

    name = "local"
    is_worker = True

    def __init__(self, client: Client) -> None:
        self.client = client
        self.links = LinkTable(client)
        self.actor_handle: tuple[bytes, str] | None = None  # id and class name of this process's actor
        self.is_async_actor = False
        self.default_lifetime = ""  # of actors created without a lifetime
        self.stray_parent: Callable[[], bytes] | None = None  # returns the task for threads of user code
        self.stray_template: Callable[[], m.TaskTemplate | None] | None = None  # returns its template
        self.restarts = 0  # of this process's actor
        self.instance: Any = None
        self.driver_has_terminal = False
        self.accelerators: dict[str, list[str]] = {}  # assigned to the actor
        self.environment: dict[str, Any] = {}  # the runtime environment of the job or of this worker
        self.environment_resolver: Callable[[dict[str, Any] | None], str] | None = None
        self._at_shutdown: list[Callable[[], None]] = []
        install(client)
        client.channel.on_node_closed = self._node_closed
        client.channel.handlers[m.Cancel] = self._cancel_for_others

    # ------------------------------------------------------------ objects

    def put(self, value: Any) -> ObjectRef[Any]:
        """Store a value."""
        return self.client.put(value)

    def get(self, references: list[ObjectRef[Any]], timeout: float | None) -> list[Any]:
        """Return the values of references; raise the first error."""
        return self.client.get(references, timeout)

    def get_one(self, reference: ObjectRef[Any], timeout: float | None) -> Any:
        """Return the value of a reference."""
        return self.client.get([reference], timeout)[0]

    def wait(
        self, references: list[Any], num_returns: int, timeout: float | None, fetch_local: bool = True
    ) -> tuple[list[Any], list[Any]]:
        """Split references and generators into at most `num_returns` ready ones and the rest."""
        return self.client.wait(references, num_returns, timeout)

    def free(self, references: Sequence[ObjectRef[Any]]) -> None:
        """Drop the values of references now."""
        for reference in references:
            self.client.promote(reference)
        self.client.mappings.release_idle()
        self.client.channel.send(m.Free([reference._id for reference in references]))

    # ------------------------------------------------------------ tasks

    def submit(self, function: TaskFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Returns:
        """Submit a task."""
        client = self.client
        cached = function.submission_cache
        if cached is None or cached[0] is not client:
            cached = self._cache_submission(function)
        _, number, count, window = cached
        plain = dumps_plain_call(args, kwargs) if count == 1 else None
        if plain is not None and len(plain) <= INLINE_LIMIT:  # most tasks
            return submit_private(client, number, plain, self.stray_parent)
        args, kwargs, found = split_arguments(args, kwargs)
        payload = Serialized(plain, [], []) if plain else pack_arguments(args, kwargs, function.export.name)
        packed = Packed(client, payload)
        if count == 1 and not found and not packed.keep:
            return submit_private(client, number, packed.data, self.stray_parent)
        dependencies = []
        for slot, reference in found:
            client.promote(reference)
            dependencies.append((slot, reference._id))
        task, parent, depth = begin_task(client, self.stray_parent)
        refs: Returns
        if count == 1 or count == m.DYNAMIC:
            refs = client.references.new_reference(task + ids.FIRST_INDEX)
        elif count == m.STREAMING:
            refs = ObjectRefGenerator(TaskStream(client, task, window, client.channel.send))
        elif count == 0:
            refs = None
        else:
            refs = [client.references.new_reference(ids.object_id(task, i)) for i in range(1, count + 1)]
        client.channel.send(
            m.Submit(
                task, number, packed.data, dependencies, packed.contains, packed.args_object, parent, depth
            )
        )
        return refs

    def _cache_submission(self, function: TaskFunction) -> tuple[Client, int, int, int]:
        client = self.client
        environment = self._environment(function.options.runtime_env)
        submitter = self._submitter()
        spec = task_template(function, environment, submitter)
        client.export(spec.function, lambda: function.export.code)
        number = template_number(client, spec)
        cached = (client, number, spec.num_returns, spec.backpressure)
        if (
            submitter is None or not submitter.capture_children
        ):  # in a placement group the template depends on the submitting task
            function.submission_cache = cached
        return cached

    def _submitter(self) -> m.TaskTemplate | None:
        """Return the template of the task or actor that the calling code belongs to."""
        running = current_task.get()
        if running is not None:
            return running.template
        return None if self.stray_template is None else self.stray_template()

    def _environment(self, own: dict[str, Any] | None) -> str:
        """Return the serialized runtime environment of a task or actor; "" for the job's own."""
        if self.environment_resolver is None:
            return ""
        return self.environment_resolver(own)

    def cancel(self, reference: ObjectRef[Any], *, force: bool, recursive: bool) -> None:
        """Cancel the task or call that makes an object."""
        self.client.check([reference])
        self.cancel_by_id(ids.task_of(reference._id), force=force, recursive=recursive)

    def cancel_generator(self, generator: ObjectRefGenerator[Any], *, force: bool, recursive: bool) -> None:
        """Cancel the task or call that makes the items of a generator."""
        self.cancel_by_id(generator._stream.task, force=force, recursive=recursive)

    def cancel_by_id(self, task: bytes, *, force: bool, recursive: bool) -> None:
        """Cancel a task or call."""
        actor = ids.actor_of(task)
        if actor is not None and force:
            raise ValueError("force=True is not supported for actor tasks: use skate.kill to end the actor.")
        if actor is None or ids.process_of(task) != self.client.number:
            # The node knows tasks; only the calling process knows a call.
            self.client.channel.send(m.Cancel(task, force, recursive))
        else:
            self.links[actor].cancel(task, recursive=recursive)

    def _cancel_for_others(self, message: m.Cancel) -> None:
        """Cancel a call of this process for another one."""
        self.cancel_by_id(message.task, force=False, recursive=message.recursive)

    def is_cancelled(self) -> bool:
        """Return whether the running task was cancelled."""
        running = current_task.get()
        return running is not None and running.cancelled

    # ------------------------------------------------------------ actors

    def create_actor(
        self, template: ActorTemplate, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> CreatedActor:
        """Create an actor, or find the existing one where `get_if_exists` allows it."""
        client = self.client
        spec = actor_template(template, self._environment(template.options.runtime_env), self._submitter())
        client.export(spec.function, lambda: template.export.code)
        number = template_number(client, spec)
        args, kwargs, found = split_arguments(args, kwargs)
        packed = Packed(client, pack_arguments(args, kwargs, f"{template.export.name}.__init__"))
        dependencies = []
        for slot, reference in found:
            client.promote(reference)
            dependencies.append((slot, reference._id))
        actor = client.ids.actor()
        metadata = dumps(ActorDescription.of(template))
        options = actor_options(template, client.namespace, metadata, self.default_lifetime)
        running = current_task.get()
        parent = running.task if running is not None else b""
        if not parent and self.stray_parent is not None:
            parent = self.stray_parent()

        def message(request: int) -> m.CreateActor:
            return m.CreateActor(
                actor,
                number,
                packed.data,
                options,
                dependencies,
                packed.contains,
                packed.args_object,
                request,
                parent,
            )

        handle = client.references.new_reference(handle_id(actor))
        self.links[actor].created_here()
        if not options.name:
            client.channel.send(message(0))
            return CreatedActor(actor, handle, True)
        answer = client.channel.request(message)
        existing: bytes = answer["actor"]
        if existing == actor:
            return CreatedActor(actor, handle, True)
        client.references.forget(handle)
        return CreatedActor(existing, None, False)

    def ship_actor(self, actor: bytes, keep: object) -> None:
        """Record that a handle leaves this process."""
        if keep is not None:
            keep.__reduce__()

    def hold_actor(self, actor: bytes, carried: object, *, weak: bool) -> object:
        """Return the reference that keeps an actor alive for an unpickled handle; None if `weak`."""
        return None if weak else self.client.references.revive(handle_id(actor))

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
        client = self.client
        link = self.links[actor]
        link.unordered = unordered
        if limit > 0 and link.pending() >= limit:
            raise exceptions.PendingCallsLimitExceeded(
                f"The actor has {link.pending()} calls pending, and max_pending_calls is {limit}: get some of the "
                "results before calling again."
            )
        args, kwargs, found = split_arguments(args, kwargs)
        packed = Packed(client, pack_arguments(args, kwargs, method.name))
        task = client.ids.call(actor)
        known = method.submission_cache
        if known is None or known[0] is not options:
            known = method.submission_cache = prepare_call(method, options)
        _, count, window, group, rare = known
        call = m.Call(task, method.name, packed.data, [], packed.args_object, count, group, rare)
        call.caller = client.number
        running = current_task.get()
        if running is not None:
            call.depth = running.depth + 1
            running.children.append(task)
        refs: Returns
        every: list[ObjectRef[Any]]
        stream = None
        if count == 1 or count == m.DYNAMIC:
            refs = client.references.own_reference(task + ids.FIRST_INDEX)
            every = [refs]
        elif count == m.STREAMING:
            stream = TaskStream(client, task, window, link.report)
            refs, every = ObjectRefGenerator(stream), []
        elif count == 0:
            refs, every = None, []
        else:
            refs = every = [
                client.references.own_reference(ids.object_id(task, i)) for i in range(1, count + 1)
            ]
        pending = PendingCall(call, every, [handle, *packed.keep] if packed.keep else [handle])
        pending.retries_left = retries
        pending.stream = stream
        pending.dependencies = found
        if found:
            for _, reference in found:
                client.check([reference])
        link.submit(pending)
        return refs

    def kill(self, actor: bytes, *, no_restart: bool) -> None:
        """Kill an actor's process; further calls from this process fail at once."""
        if not self.client.ids.is_of_session(actor):
            raise exceptions.ActorHandleNotFoundError(failures.foreign_handle(actor))
        self.client.channel.send(m.KillActor(actor, no_restart))
        if no_restart:
            self.links[actor].killed()

    def find_actor(self, name: str, namespace: str | None) -> tuple[bytes, ActorDescription]:
        """Return the id and the description of a named actor; raise ValueError if none has the name."""
        text = f"{namespace or self.client.namespace}\n{name}"
        answer = self.client.channel.ask(m.Question.ACTOR_BY_NAME, text=text)
        return answer["actor"], loads(answer["metadata"])

    def named_actors(self, *, all_namespaces: bool) -> list[dict[str, str]]:
        """Return the name and the namespace of each living named actor."""
        namespace = "*" if all_namespaces else self.client.namespace
        found: list[dict[str, str]] = self.client.channel.ask(m.Question.NAMED_ACTORS, text=namespace)
        return found

    def _own_actor(self) -> dict[str, Any]:
        assert self.actor_handle is not None
        found: dict[str, Any] = self.client.channel.ask(m.Question.ACTOR_BY_ID, subject=self.actor_handle[0])
        return found

    def describe_own_actor(self) -> ActorDescription:
        """Return the description of this process's actor."""
        description: ActorDescription = loads(self._own_actor()["metadata"])
        return description

    def actor_name(self) -> str:
        """Return the name of this process's actor, "" if it has none."""
        return str(self._own_actor()["name"])

    def actor_restarts(self) -> int:
        """Return how often this process's actor was restarted."""
        return self.restarts

    def announce_breakpoint(self, stop: Breakpoint) -> bool:
        """Tell the driver that this worker waits for a debugger; return whether the driver has a terminal."""
        if self.driver_has_terminal:
            from dataclasses import asdict

            self.client.channel.send(m.Stopped(asdict(stop)))
            self.client.channel.flush()  # this thread is about to wait
        return self.driver_has_terminal

    def exit_actor(self) -> None:
        """End this process's actor by an exception that passes through user code."""
        if self.actor_handle is None:
            raise TypeError("exit_actor API is called on a non-actor worker: only an actor can exit itself.")
        running = current_task.get()
        if running is not None:
            running.exiting = True  # even if user code catches the exception
        raise ExitRequest(0)

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
        group = self.client.ids.group()
        self.client.channel.request(
            lambda request: m.CreateGroup(
                request, group, bundles, strategy, name, self.client.namespace, lifetime == "detached", labels
            )
        )
        return group

    def remove_placement_group(self, id: bytes) -> None:
        """End the work that runs in a group, and release its resources."""
        self.client.channel.send(m.RemoveGroup(id))

    def placement_group_ready(self, id: bytes, value: object) -> ObjectRef[Any]:
        """Return a reference that becomes `value` once the group's resources are reserved."""
        reference = self.client.references.new_reference(ids.object_id(self.client.ids.task(), 1))
        self.client.channel.send(m.WatchGroup(id, reference._id, dumps(value)))
        return reference

    def placement_group_table(self) -> dict[str, dict[str, Any]]:
        """Return all groups by id, in the shape of Ray's table."""
        return group_table(self.client.channel.ask(m.Question.GROUPS), self.client.node_id)

    def find_placement_group(self, name: str, namespace: str | None) -> bytes | None:
        """Return the id of the group with this name, or None."""
        text = f"{namespace or self.client.namespace}\n{name}"
        try:
            id: bytes = self.client.channel.ask(m.Question.GROUP_BY_NAME, text=text)
        except ValueError:
            return None
        return id

    def current_placement_group(self) -> bytes | None:
        """Return the id of the group that the running task or actor is in, or None."""
        submitter = self._submitter()
        return None if submitter is None else submitter.group or None

    # ------------------------------------------------------------ the node and this process

    def context(self) -> EngineContext:
        """Return the process, the task and the actor that the calling code runs in."""
        client = self.client
        running = current_task.get()
        actor = self.actor_handle
        return EngineContext(
            worker=client.number,
            job=client.job,
            node=client.node_id,
            session=client.session,
            namespace=client.namespace,
            labels=client.labels,
            task=None if running is None else running.describe(),
            actor=None if actor is None else ActorIdentity(*actor, self.is_async_actor),
            accelerators=(running.resources if running is not None else None) or self.accelerators,
            runtime_env=self.environment,
        )

    def resources(self) -> dict[str, float]:
        """Return all resources of the node."""
        answer: dict[str, float] = self.client.channel.ask(m.Question.TOTAL)
        return answer

    def available(self) -> dict[str, float]:
        """Return the resources that are not in use."""
        answer: dict[str, float] = self.client.channel.ask(m.Question.AVAILABLE)
        return answer

    def nodes(self) -> list[dict[str, Any]]:
        """Return the one node in the shape of Ray's table."""
        client = self.client
        return [node_row(client.node_id, client.session, self.resources(), client.labels)]

    def state(self, table: Table) -> list[dict[str, Any]]:
        """Return the rows of a table; see `state/views.py`."""
        rows: list[dict[str, Any]] = self.client.channel.ask(m.Question(table))
        return rows

    def object_store(self) -> dict[str, int]:
        """Return the size and the usage of the object store."""
        usage: dict[str, int] = self.client.channel.ask(m.Question.OBJECT_STORE)
        return usage

    def publish(self, references: Sequence[ObjectRef[Any]]) -> None:
        """Send small values, which only this process has, to the node."""
        for reference in references:
            self.client.promote(reference)

    def why(self, reference: ObjectRef[Any]) -> list[str]:
        """Explain what a reference waits for, one step per line."""
        self.client.check([reference])
        return self.why_by_id(reference._id)

    def why_by_id(self, id: bytes) -> list[str]:
        """Explain what an object waits for, one step per line."""
        lines: list[str] = self.client.channel.ask(m.Question.WHY, subject=id)
        return lines

    def observe(self, view: View, *numbers: int) -> dict[str, Any]:
        """Return an answer of `state/activity.py`."""
        text = " ".join(map(str, numbers))
        answer: dict[str, Any] = self.client.channel.ask(m.Question(view), text=text)
        return answer

    def on_shutdown(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the engine is shut down."""
        self._at_shutdown.append(callback)

    def _node_closed(self) -> None:
        error = dumps(exceptions.NodeDiedError("The node process of this session has died."))
        self.links.fail_all(error)
        self.client.references.fail_expected(error)

    def shutdown(self) -> None:
        """Leave the session."""
        for callback in self._at_shutdown:
            callback()
        uninstall()
        self.client.close("shutdown() was called")
