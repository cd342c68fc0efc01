"""The ray engine: the same program on a Ray cluster, through Ray's public API.

Tasks, actors, objects and placement groups are Ray's own. Each call of the protocol is one call of Ray; references,
handles and errors are translated at the edge (`references`, `shipping`, `failures`). Processes of a cluster need Skate
and the program's modules, which `preflight` looks for when a driver connects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from skate._base import ids
from skate._base.alias import real_ray
from skate._base.exports import ActorTemplate, MethodInfo, TaskFunction
from skate._base.generator import DynamicObjectRefGenerator, ObjectRefGenerator
from skate._base.object_ref import ObjectRef
from skate._base.options import MethodOptions
from skate._base.reducers import follow
from skate._engine.common import failures
from skate._engine.common.calls import pack_arguments, split_arguments
from skate._engine.ray import context, references, shipping, state
from skate._engine.ray.failures import translated
from skate._engine.ray.handles import Handles
from skate._engine.ray.options import group_of, translated_options
from skate._engine.ray.references import Carried, RayStream, wrap

_PLAIN = MethodOptions()


NO_CLIENT_STREAMS = (
    "Ray Client (an address of the form ray://…) has no streaming generators: run the program on a machine of the "
    "cluster, with address='auto', or return a list."
)


class RayEngine:
    """Implements the engine protocol on Ray."""

    name = "ray"

    def __init__(self, *, owns_connection: bool, address: str | None = None) -> None:
        self._ray = real_ray()
        self._theirs = real_ray("ray.exceptions")
        self._get = self._ray.get
        self._put = self._ray.put
        self._dynamic = self._ray.DynamicObjectRefGenerator
        self._generator = self._ray.ObjectRefGenerator
        self.is_worker = not owns_connection
        self.address = address
        self.over_client = bool(address) and str(address).startswith("ray://")
        self.address_info: dict[str, Any] = {}
        self.own_actor: dict[str, Any] | None = None
        self._at_shutdown: list[Callable[[], None]] = [follow(self._registered)]
        self._handles = Handles(self)

    def _registered(self, kind: type, functions: tuple[Any, Any] | None) -> None:
        """Let Ray pickle a class as the user wants it."""
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
        """Split references into those that are ready, at most `num_returns`, and the rest."""
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
        rest = [
            each for each in references if id(each) not in found
        ]  # also those of a session that has ended
        return [each for each in references if id(each) in found], rest

    def free(self, references: Sequence[ObjectRef[Any]]) -> None:
        """Drop the values of these references now."""
        real_ray("ray._private.internal_api").free([reference._data for reference in references])

    def id_of(self, reference: ObjectRef[Any]) -> bytes:
        """Return the id of an object; Ray Client may have to ask for it."""
        id: bytes = reference._data.binary()
        return id

    def reference_pickled(self, reference: ObjectRef[Any]) -> tuple[Any, ...]:
        """Return how a reference travels: with Ray's inside, which Ray counts."""
        return references.revive, (reference._data,)

    def native_result(self, reference: ObjectRef[Any]) -> Any:
        """Return an awaitable for a value."""
        return references.result(reference)

    def native_future(self, reference: ObjectRef[Any]) -> Any:
        """Return a future for a value."""
        return references.future(reference)

    # ------------------------------------------------------------ tasks

    def submit(self, function: TaskFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a task and return its reference or references."""
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
        """Raise for an argument that cannot be pickled, and say which: Ray's error shows the value only."""
        plain, keywords, _ = split_arguments(args, kwargs)
        pack_arguments(plain, keywords, what)

    def _task(self, function: TaskFunction) -> Any:
        """Return Ray's remote function for one of ours, with its options."""
        export = function.export
        given = function.options.given()
        # What the wrapper depends on, and what Ray does not take in `.options()`.
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

    def _results(self, results: Any) -> Any:
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

    def cancel_task(self, task: Any, *, force: bool, recursive: bool) -> None:
        """Cancel a generator."""
        self._ray.cancel(task, force=force, recursive=recursive)

    # ------------------------------------------------------------ actors

    def create_actor(
        self, template: ActorTemplate, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[bytes, Any, bool]:
        """Create an actor; return its id, what keeps it alive, and whether it is new."""
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
        return *self._handles.note(handle), True

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

    def ship_actor(self, actor: bytes, keep: Any) -> Any:
        """Return what a handle takes along when it leaves this process: Ray's handle."""
        return Carried((keep or self._handles[actor]).handle)

    def hold_actor(self, actor: bytes, carried: Any, *, weak: bool) -> Any:
        """Return what keeps an actor alive for a handle that arrives here."""
        _, kept = self._handles.note(carried.handle, stays=weak)
        return None if weak else kept

    def call(
        self,
        actor: bytes,
        method: MethodInfo,
        options: MethodOptions,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        keep: Any,
        *,
        retries: int = 0,
        limit: int = -1,
        unordered: bool = False,
    ) -> Any:
        """Call a method of an actor."""
        kept = keep._ray_keep
        if kept is None or kept.engine is not self:
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

    def find_actor(self, name: str, namespace: str | None) -> tuple[bytes, Any]:
        """Return id and description of the actor with this name."""
        handle = self._ray.get_actor(name, namespace)
        id, _ = self._handles.note(handle, stays=True)
        return id, {
            "methods": {
                method: MethodInfo(method, _PLAIN, None, generator=False, is_async=False)
                for method in (*dir(handle), "__ray_ready__", "__ray_call__", "__ray_terminate__")
            },
            "class_name": getattr(handle, "_ray_actor_class_name", "") or name,
            "max_task_retries": 0,
            "max_pending_calls": -1,
        }

    def named_actors(self, *, all_namespaces: bool) -> list[dict[str, str]]:
        """Return the names of living named actors."""
        found = self._ray.util.list_named_actors(all_namespaces=all_namespaces)
        if all_namespaces:
            return list(found)
        namespace = self._ray.get_runtime_context().namespace
        return [{"name": name, "namespace": namespace} for name in found]

    def own_methods(self) -> tuple[Any, str, int, int, bool]:
        """Return what a handle to the actor that asks needs."""
        own = self.own_actor
        assert own is not None
        handle = self._ray.get_runtime_context().current_actor
        self._handles.note(handle, stays=True)
        return (
            own["methods"],
            own["class_name"],
            own["max_task_retries"],
            own["max_pending_calls"],
            own["unordered"],
        )

    def actor_id(self) -> bytes:
        """Return the id of the actor that asks."""
        return bytes.fromhex(self._ray.get_runtime_context().get_actor_id())

    def actor_name(self) -> str:
        """Return the name of the actor that asks, "" if it has none."""
        return str(self._ray.get_runtime_context().get_actor_name() or "")

    def exit_actor(self) -> None:
        """End the actor that asks, by an exception that runs through the user's code."""
        real_ray("ray.actor").exit_actor()

    @property
    def is_async_actor(self) -> bool:
        """Whether the actor that asks is asynchronous."""
        own = self.own_actor
        return own is not None and any(method.is_async for method in own["methods"].values())

    @property
    def restarts(self) -> int:
        """More than none when the actor that asks was restarted."""
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
        """Reserve bundles; the reservation may happen later."""
        selectors = labels if any(labels) else None
        group = self._ray.util.placement_group(
            bundles, strategy=strategy, name=name, lifetime=lifetime, bundle_label_selector=selectors
        )
        id: bytes = group.id.binary()
        return id

    def remove_placement_group(self, id: bytes) -> None:
        """End what runs in a group, and give its resources back.

        Ray 2.60 loses the resources of a group that is removed in the moment in which it is placed. So Ray is asked
        until that moment has passed, which takes milliseconds also for a group that has to wait.
        """
        group = group_of(id)
        while self._is_being_placed(group):
            pass
        self._ray.util.remove_placement_group(group)

    def _is_being_placed(self, group: Any) -> bool:
        stats = self._ray.util.placement_group_table(group).get("stats", {})
        return stats.get("scheduling_state") in ("QUEUED", "SCHEDULING_STARTED")

    def placement_group_ready(self, id: bytes, value: object) -> ObjectRef[Any]:
        """Return a reference that gets `value` once the group is reserved."""
        reserved = group_of(id).ready()
        return wrap(self._ray.remote(num_cpus=0)(_second).remote(reserved, value), self)

    def placement_group_table(self) -> dict[str, dict[str, Any]]:
        """Return all groups in the shape of Ray's table."""
        table: dict[str, dict[str, Any]] = self._ray.util.placement_group_table()
        return table

    def find_placement_group(self, name: str, namespace: str | None) -> bytes | None:
        """Return the id of the group with this name."""
        try:
            id: bytes = self._ray.util.get_placement_group(name).id.binary()
        except ValueError:
            return None
        return id

    def current_placement_group(self) -> bytes | None:
        """Return the group that the running task or actor is in."""
        found = self._ray.util.get_current_placement_group()
        return None if found is None else found.id.binary()

    # ------------------------------------------------------------ the cluster and this process

    def context(self) -> dict[str, Any]:
        """Return what the runtime context shows."""
        return context.Facts(self)

    def resources(self) -> dict[str, float]:
        """Return all resources of the cluster."""
        found: dict[str, float] = self._ray.cluster_resources()
        return found

    def available(self) -> dict[str, float]:
        """Return the resources that nobody uses now."""
        found: dict[str, float] = self._ray.available_resources()
        return found

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes of the cluster."""
        found: list[dict[str, Any]] = self._ray.nodes()
        return found

    def state(self, kind: str) -> list[dict[str, Any]]:
        """Return a table of this engine's own; Ray has its own instead, which `state_rows` returns."""
        raise NotImplementedError(f"Ray keeps no table of {kind!r} in Skate's form")

    def state_rows(self, resource: str) -> list[dict[str, Any]]:
        """Return a table of Ray's state API, with details."""
        return state.table(resource)

    def list_logs(self, **question: Any) -> dict[str, list[str]]:
        """Return the names of logs on a node."""
        return state.logs(**question)

    def get_log(self, **question: Any) -> Iterator[str]:
        """Yield the text of a log."""
        return state.log(**question)

    def why(self, reference: ObjectRef[Any]) -> list[str]:
        """Say what a reference waits for, as far as Ray knows."""
        return state.why(reference._data, ids.task_of(reference._id).hex())

    def timeline(self) -> list[dict[str, Any]]:
        """Return what ran when, as events of Chrome's trace format."""
        events: list[dict[str, Any]] = self._ray.timeline()
        return events

    def on_shutdown(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the engine is shut down."""
        self._at_shutdown.append(callback)

    def shutdown(self) -> None:
        """Leave the cluster; a Ray that `init` started ends."""
        for callback in self._at_shutdown:
            callback()
        self._at_shutdown.clear()
        self._ray.shutdown()


class _CachedSubmission:
    """What one engine has prepared for a function, a class or a template."""

    __slots__ = ("engine", "remote")

    def __init__(self, engine: RayEngine, remote: Any) -> None:
        self.engine = engine
        self.remote = remote


def _native(waitable: Any) -> Any:
    """Return Ray's reference or generator inside one of ours."""
    return waitable._data if type(waitable) is ObjectRef else waitable._stream.task


def _engine_of(waitable: Any) -> Any:
    return waitable._engine if type(waitable) is ObjectRef else waitable._stream.engine


def _second(first: Any, second: Any) -> Any:
    """Return the second argument, when the first is there."""
    return second
