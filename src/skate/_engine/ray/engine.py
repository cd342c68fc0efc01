"""The ray engine: the same program on a Ray cluster, through Ray's public API.

Tasks, actors, objects and placement groups are Ray's own. Each method of the engine is one call of Ray; `references`,
`handles`, `shipping` and `failures` translate references, handles, user code and errors. The processes of a cluster
need Skate and the program's modules; `preflight` checks for them when a driver connects.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from skate._base import ids
from skate._base.alias import real_ray
from skate._base.exports import ActorTemplate, MethodInfo, TaskFunction
from skate._base.generator import DynamicObjectRefGenerator, ObjectRefGenerator
from skate._base.object_ref import ObjectRef, ReferenceOwner
from skate._base.options import MethodOptions
from skate._base.reducers import follow
from skate._engine.abc import ActorDescription, CreatedActor, Engine, EngineContext, Handle, Returns, Table
from skate._engine.common import failures
from skate._engine.common.calls import pack_arguments, split_arguments
from skate._engine.ray import references, shipping, state
from skate._engine.ray.context import RayContext
from skate._engine.ray.failures import translated
from skate._engine.ray.handles import Handles, Kept
from skate._engine.ray.options import group_of, translated_options
from skate._engine.ray.references import Carried, RayStream, wrap

_PLAIN = MethodOptions()


NO_CLIENT_STREAMS = (
    "Ray Client (an address of the form ray://…) has no streaming generators: run the program on a machine of the "
    "cluster, with address='auto', or return a list."
)


class RayEngine(Engine, ReferenceOwner):
    """Implements the engine interface with Ray."""

    name = "ray"

    def __init__(
        self,
        *,
        owns_connection: bool,
        address: str | None = None,
        address_info: Mapping[str, object] | None = None,
    ) -> None:
        self._ray = real_ray()
        self._theirs = real_ray("ray.exceptions")
        self._get = self._ray.get
        self._put = self._ray.put
        self._dynamic = self._ray.DynamicObjectRefGenerator
        self._generator = self._ray.ObjectRefGenerator
        self._is_worker = not owns_connection
        self.address = address
        self.over_client = bool(address) and str(address).startswith("ray://")
        self.address_info = address_info or {}
        self.native_state = state.RayState()
        self.own_actor: ActorDescription | None = None
        self._at_shutdown: list[Callable[[], None]] = [follow(self._registered)]
        self._handles = Handles(self)

    @property
    def is_worker(self) -> bool:
        """Whether this process is a worker of Ray."""
        return self._is_worker

    def _registered(self, kind: type, functions: tuple[Any, Any] | None) -> None:
        """Register or remove the user's serializer of a class in Ray."""
        if functions is None:
            self._ray.util.deregister_serializer(kind)
        else:
            serializer, deserializer = functions
            self._ray.util.register_serializer(kind, serializer=serializer, deserializer=deserializer)

    # ------------------------------------------------------------ objects

    def put(self, value: Any) -> ObjectRef[Any]:
        """Store a value."""
        shipping.follow_modules()
        return wrap(self._put(value), self)

    def get(self, references: list[ObjectRef[Any]], timeout: float | None) -> list[Any]:
        """Return the values of references; raise the first error."""
        wanted = [ref._data if ref._engine is self else self._foreign(ref) for ref in references]
        try:
            values: list[Any] = self._get(wanted, timeout=timeout)
        except Exception as error:
            raise translated(error) from None
        if self._dynamic in map(type, values):
            values = [self._translated_value(value) for value in values]
        return values

    def get_one(self, reference: ObjectRef[Any], timeout: float | None) -> Any:
        """Return the value of a reference."""
        if reference._engine is not self:
            self._foreign(reference)
        try:
            value = self._get(reference._data, timeout=timeout)
        except Exception as error:
            raise translated(error) from None
        return value if type(value) is not self._dynamic else self._translated_value(value)

    def _translated_value(self, value: Any) -> Any:
        if type(value) is not self._dynamic:
            return value
        return DynamicObjectRefGenerator([wrap(reference, self) for reference in value])

    def _foreign(self, reference: ObjectRef[Any]) -> Any:
        raise ValueError(failures.foreign_reference(reference))

    def wait(
        self, references: list[Any], num_returns: int, timeout: float | None, fetch_local: bool = True
    ) -> tuple[list[Any], list[Any]]:
        """Split references and generators into at most `num_returns` ready ones and the rest."""
        theirs = {_native(each): each for each in references if _engine_of(each) is self}
        if not theirs:
            raise ValueError(failures.foreign_reference(references[0], several=len(references) > 1))
        ready, _ = self._ray.wait(
            list(theirs),
            num_returns=min(num_returns, len(theirs)),
            timeout=timeout,
            fetch_local=fetch_local,
        )
        found = {id(theirs[each]) for each in ready}
        # The rest includes references of sessions that have ended.
        rest = [each for each in references if id(each) not in found]
        return [each for each in references if id(each) in found], rest

    def free(self, references: Sequence[ObjectRef[Any]]) -> None:
        """Drop the values of references now."""
        real_ray("ray._private.internal_api").free([reference._data for reference in references])

    def id_of(self, reference: ObjectRef[Any]) -> bytes:
        """Return the id of an object; Ray Client may have to fetch it."""
        id: bytes = reference._data.binary()
        return id

    def reference_pickled(self, reference: ObjectRef[Any]) -> tuple[Any, ...]:
        """Return the reduction of a reference: it contains Ray's, which Ray counts."""
        return references.revive, (reference._data,)

    def reference_dropped(self, reference: ObjectRef[Any]) -> None:
        """Do nothing: Ray counts its own references."""

    def promote(self, reference: ObjectRef[Any]) -> None:
        """Do nothing: Ray knows all objects."""

    def await_value(self, reference: ObjectRef[Any]) -> Coroutine[Any, Any, Any]:
        """Return a coroutine that waits for the value in an event loop."""
        return references.result(reference)

    def future_of(self, reference: ObjectRef[Any]) -> Future[Any]:
        """Return a `concurrent.futures.Future` for the value."""
        return references.future(reference)

    # ------------------------------------------------------------ tasks

    def submit(self, function: TaskFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Returns:
        """Submit a task."""
        if self.over_client and function.is_generator and function.options.num_returns in (None, "streaming"):
            raise NotImplementedError(NO_CLIENT_STREAMS)
        cached = function.submission_cache
        if type(cached) is not _CachedSubmission or cached.engine is not self:
            cached = function.submission_cache = _CachedSubmission(self, self._task(function))
        try:
            results = cached.remote(*self._arguments(args), **self._keywords(kwargs))
        except TypeError:
            self._name_unpicklable(args, kwargs, function.export.name)
            raise
        return self._results(results)

    @staticmethod
    def _name_unpicklable(args: tuple[Any, ...], kwargs: dict[str, Any], what: str) -> None:
        """Raise an error that names the argument that cannot be pickled: Ray's shows the value only."""
        plain, keywords, _ = split_arguments(args, kwargs)
        pack_arguments(plain, keywords, what)

    def _task(self, function: TaskFunction) -> Any:
        """Return Ray's remote function for one of Skate's, with its options."""
        export = function.export
        given = function.options.given()
        # The wrapper depends on these, and Ray does not accept max_calls in `.options()`.
        variant = (function.options.effective_retry_exceptions, given.pop("max_calls", None))
        if (
            type(export.submission_cache) is not _CachedSubmission
            or export.submission_cache.engine is not self
        ):
            export.submission_cache = _CachedSubmission(self, {})
        known = export.submission_cache.remote
        if variant not in known:
            wrapper = shipping.task(function)
            calls = variant[1]
            known[variant] = (
                self._ray.remote(wrapper) if calls is None else self._ray.remote(max_calls=calls)(wrapper)
            )
        options = translated_options(given)
        return (known[variant].options(**options) if options else known[variant]).remote

    def _arguments(self, args: tuple[Any, ...]) -> Sequence[Any]:
        shipping.follow_modules()
        for value in args:
            if type(value) is ObjectRef:
                return [each._data if type(each) is ObjectRef else each for each in args]
        return args

    def _keywords(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        for value in kwargs.values():
            if type(value) is ObjectRef:
                return {
                    name: each._data if type(each) is ObjectRef else each for name, each in kwargs.items()
                }
        return kwargs

    def _results(self, results: Any) -> Returns:
        if results is None:
            return None
        if type(results) is list:
            return [wrap(each, self) for each in results]
        if type(results) is self._generator:
            return ObjectRefGenerator(RayStream(results, self))
        return wrap(results, self)

    def cancel(self, reference: ObjectRef[Any], *, force: bool, recursive: bool) -> None:
        """Cancel the task or call that makes an object."""
        self._ray.cancel(reference._data, force=force, recursive=recursive)

    def cancel_generator(self, generator: ObjectRefGenerator[Any], *, force: bool, recursive: bool) -> None:
        """Cancel the task or call that makes the items of a generator."""
        self._ray.cancel(_native(generator), force=force, recursive=recursive)

    def is_cancelled(self) -> bool:
        """Return whether the running task was cancelled."""
        return bool(self._ray.get_runtime_context().is_canceled())

    # ------------------------------------------------------------ actors

    def create_actor(
        self, template: ActorTemplate, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> CreatedActor:
        """Create an actor."""
        cached = template.submission_cache
        if type(cached) is not _CachedSubmission or cached.engine is not self:
            cached = template.submission_cache = _CachedSubmission(self, self._actor(template))
        try:
            handle = cached.remote(*self._arguments(args), **self._keywords(kwargs))
        except TypeError:
            self._name_unpicklable(args, kwargs, f"{template.export.name}.__init__")
            raise
        except Exception as error:
            raise translated(error) from None
        return CreatedActor(*self._handles.note(handle), True)

    def _actor(self, template: ActorTemplate) -> Any:
        export = template.export
        given = template.options.given()
        variant = repr(given.pop("concurrency_groups", None))
        if (
            type(export.submission_cache) is not _CachedSubmission
            or export.submission_cache.engine is not self
        ):
            export.submission_cache = _CachedSubmission(self, {})
        known = export.submission_cache.remote
        if variant not in known:
            groups = template.options.concurrency_groups
            host = shipping.actor(template)
            known[variant] = (
                self._ray.remote(host)
                if groups is None
                else self._ray.remote(concurrency_groups=groups)(host)
            )
        options = translated_options(given)
        return (known[variant].options(**options) if options else known[variant]).remote

    def ship_actor(self, actor: bytes, keep: object) -> Carried:
        """Return Ray's handle, to pickle with one of Skate's."""
        kept = keep if isinstance(keep, Kept) else self._handles[actor]
        return Carried(kept.handle)

    def hold_actor(self, actor: bytes, carried: object, *, weak: bool) -> Kept | None:
        """Return Ray's handle, which keeps an actor alive for an unpickled handle; None if `weak`."""
        assert isinstance(carried, Carried)
        _, kept = self._handles.note(carried.handle, stays=weak)
        return None if weak else kept

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
        """Call a method of an actor."""
        kept = handle._ray_keep
        if type(kept) is not Kept or kept.engine is not self:
            kept = self._handles[actor]
        if self.over_client and method.is_generator and options.num_returns in (None, "streaming"):
            raise NotImplementedError(NO_CLIENT_STREAMS)
        name = shipping.CALL if method.name == "__ray_call__" else method.name
        bound = kept.method(name)
        if options is not method.options:
            declared = method.options.given()
            given = {key: value for key, value in options.given().items() if declared.get(key) != value}
            bound = bound.options(**translated_options(given))
        try:
            results = bound.remote(*self._arguments(args), **self._keywords(kwargs))
        except self._theirs.RayError as error:
            raise translated(error) from None
        except TypeError:
            self._name_unpicklable(args, kwargs, method.name)
            raise
        return self._results(results)

    def kill(self, actor: bytes, *, no_restart: bool) -> None:
        """Kill an actor."""
        self._ray.kill(self._handles[actor].handle, no_restart=no_restart)

    def find_actor(self, name: str, namespace: str | None) -> tuple[bytes, ActorDescription]:
        """Return the id and the description of a named actor; raise ValueError if none has the name."""
        handle = self._ray.get_actor(name, namespace)
        id, _ = self._handles.note(handle, stays=True)
        methods = {
            method: MethodInfo(method, _PLAIN, None, generator=False, is_async=False)
            for method in (*dir(handle), "__ray_ready__", "__ray_call__", "__ray_terminate__")
        }
        return id, ActorDescription(getattr(handle, "_ray_actor_class_name", "") or name, methods)

    def named_actors(self, *, all_namespaces: bool) -> list[dict[str, str]]:
        """Return the name and the namespace of each living named actor."""
        found = self._ray.util.list_named_actors(all_namespaces=all_namespaces)
        if all_namespaces:
            return list(found)
        namespace = self._ray.get_runtime_context().namespace
        return [{"name": name, "namespace": namespace} for name in found]

    def describe_own_actor(self) -> ActorDescription:
        """Return the description of this process's actor."""
        assert self.own_actor is not None
        handle = self._ray.get_runtime_context().current_actor
        self._handles.note(handle, stays=True)
        return self.own_actor

    def actor_id(self) -> bytes:
        """Return the id of this process's actor."""
        return bytes.fromhex(self._ray.get_runtime_context().get_actor_id())

    def actor_name(self) -> str:
        """Return the name of this process's actor, "" if it has none."""
        return str(self._ray.get_runtime_context().get_actor_name() or "")

    def exit_actor(self) -> None:
        """End this process's actor by an exception that passes through user code."""
        real_ray("ray.actor").exit_actor()

    def actor_restarts(self) -> int:
        """Return 1 if this process's actor was restarted: Ray does not report how often."""
        return int(self._ray.get_runtime_context().was_current_actor_reconstructed)

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
        selectors = labels if any(labels) else None
        try:
            group = self._ray.util.placement_group(
                bundles, strategy=strategy, name=name, lifetime=lifetime, bundle_label_selector=selectors
            )
        except self._theirs.RayError as error:  # for example, the name is taken
            raise translated(error) from None
        id: bytes = group.id.binary()
        return id

    def remove_placement_group(self, id: bytes) -> None:
        """End the work that runs in a group, and release its resources.

        Ray 2.60 loses the resources of a group that is removed while it is being placed. This polls Ray until
        placement has ended, which takes milliseconds, even for a group whose resources are not available.
        """
        group = group_of(id)
        while self._is_being_placed(group):
            pass
        self._ray.util.remove_placement_group(group)

    def _is_being_placed(self, group: Any) -> bool:
        stats = self._ray.util.placement_group_table(group).get("stats", {})
        return stats.get("scheduling_state") in ("QUEUED", "SCHEDULING_STARTED")

    def placement_group_ready(self, id: bytes, value: object) -> ObjectRef[Any]:
        """Return a reference that becomes `value` once the group's resources are reserved."""
        reserved = group_of(id).ready()
        return wrap(self._ray.remote(num_cpus=0)(_second).remote(reserved, value), self)

    def placement_group_table(self) -> dict[str, dict[str, Any]]:
        """Return all groups by id, in the shape of Ray's table."""
        table: dict[str, dict[str, Any]] = self._ray.util.placement_group_table()
        return table

    def find_placement_group(self, name: str, namespace: str | None) -> bytes | None:
        """Return the id of the group with this name, or None."""
        try:
            id: bytes = self._ray.util.get_placement_group(name).id.binary()
        except ValueError:
            return None
        return id

    def current_placement_group(self) -> bytes | None:
        """Return the id of the group that the running task or actor is in, or None."""
        found = self._ray.util.get_current_placement_group()
        return None if found is None else found.id.binary()

    # ------------------------------------------------------------ the cluster and this process

    def context(self) -> EngineContext:
        """Return the process, the task and the actor that the calling code runs in."""
        return RayContext(self)

    def resources(self) -> dict[str, float]:
        """Return all resources of the cluster."""
        found: dict[str, float] = self._ray.cluster_resources()
        return found

    def available(self) -> dict[str, float]:
        """Return the resources that are not in use."""
        found: dict[str, float] = self._ray.available_resources()
        return found

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes of the cluster."""
        found: list[dict[str, Any]] = self._ray.nodes()
        return found

    def state(self, table: Table) -> list[dict[str, Any]]:
        """Raise NotImplementedError: `native_state` has Ray's own tables."""
        raise NotImplementedError(f"Ray keeps no table of {table.value!r} in Skate's form")

    def object_store(self) -> dict[str, int]:
        """Raise NotImplementedError: Ray does not report it."""
        raise NotImplementedError("Ray does not report the usage of its object store in Skate's form")

    def why(self, reference: ObjectRef[Any]) -> list[str]:
        """Explain what a reference waits for, as far as Ray reports it."""
        return state.why(reference._data, ids.task_of(reference._id).hex())

    def why_by_id(self, id: bytes) -> list[str]:
        """Explain what an object waits for, as far as Ray reports it."""
        return state.why_task(state.task_of(id).hex())

    def on_shutdown(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the engine is shut down."""
        self._at_shutdown.append(callback)

    def shutdown(self) -> None:
        """Leave the cluster; end a Ray that `init` started."""
        for callback in self._at_shutdown:
            callback()
        self._at_shutdown.clear()
        self._ray.shutdown()


class _CachedSubmission:
    """What one engine prepared for a function, a class or a template."""

    __slots__ = ("engine", "remote")

    def __init__(self, engine: RayEngine, remote: Any) -> None:
        self.engine = engine
        self.remote = remote


def _native(waitable: Any) -> Any:
    """Return Ray's reference or generator inside one of Skate's."""
    return waitable._data if type(waitable) is ObjectRef else waitable._stream.generator


def _engine_of(waitable: Any) -> Any:
    return waitable._engine if type(waitable) is ObjectRef else waitable._stream.engine


def _second(first: Any, second: Any) -> Any:
    """Return the second argument; the task waits for the first."""
    return second
