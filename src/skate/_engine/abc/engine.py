"""The abstract engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from skate._base.exports import ActorTemplate, MethodInfo, TaskFunction
from skate._base.generator import ObjectRefGenerator
from skate._base.object_ref import ObjectRef
from skate._base.options import MethodOptions
from skate._engine.abc.values import ActorDescription, CreatedActor, EngineContext, Handle, Table, View

if TYPE_CHECKING:
    from skate._base.remote_pdb import Breakpoint  # which imports pdb

Returns = ObjectRef[Any] | list[ObjectRef[Any]] | ObjectRefGenerator[Any] | None
"""The result of `.remote()`: it depends on `num_returns`."""


WaitWatcher = Callable[[Sequence[ObjectRef[Any]], int, int], Callable[[], None] | None]
"""Called when a wait takes long, with the references, how many of them must become ready, and how many others that were
waited for are ready already. It returns a function to call at the end, or None."""


class NativeState(Protocol):
    """The state API of a cluster that has its own."""

    def rows(self, resource: str) -> list[dict[str, Any]]:
        """Return the rows of a table, with details."""

    def timeline(self) -> list[dict[str, Any]]:
        """Return the tasks that ran, as events of Chrome's trace format."""

    def list_logs(
        self, *, node_id: str | None, node_ip: str | None, glob_filter: str | None, timeout: float
    ) -> dict[str, list[str]]:
        """Return the names of the logs on a node, by kind."""

    def get_log(
        self,
        *,
        node_id: str | None,
        node_ip: str | None,
        filename: str | None,
        actor_id: str | None,
        task_id: str | None,
        pid: int | None,
        follow: bool,
        tail: int,
        timeout: float,
        suffix: str,
        encoding: str | None,
        errors: str | None,
        submission_id: str | None,
        attempt_number: int,
        filter_ansi_code: bool,
    ) -> Iterator[str]:
        """Yield the text of a log."""


class Engine(ABC):
    """Runs tasks and actors, and stores objects.

    Abstract members are required. The others are optional: their defaults describe an engine without the feature.
    """

    name: ClassVar[str]
    """The name that `init(engine=…)` takes."""

    native_state: NativeState | None = None
    """The state API of the cluster, for an engine whose `state` raises."""

    address_info: Mapping[str, object] = MappingProxyType({})
    """Entries of the context that `init` returns that differ from the defaults."""

    @property
    @abstractmethod
    def is_worker(self) -> bool:
        """Whether the calling code runs in a task or an actor."""

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from the driver, and is no part of the session."""
        return False

    # ------------------------------------------------------------ objects

    @abstractmethod
    def put(self, value: Any) -> ObjectRef[Any]:
        """Store a value."""

    @abstractmethod
    def get(self, references: list[ObjectRef[Any]], timeout: float | None) -> list[Any]:
        """Return the values of references; raise the first error."""

    @abstractmethod
    def get_one(self, reference: ObjectRef[Any], timeout: float | None) -> Any:
        """Return the value of a reference."""

    @abstractmethod
    def wait(
        self, references: list[Any], num_returns: int, timeout: float | None, fetch_local: bool = True
    ) -> tuple[list[Any], list[Any]]:
        """Split references and generators into at most `num_returns` ready ones and the rest."""

    @abstractmethod
    def free(self, references: Sequence[ObjectRef[Any]]) -> None:
        """Drop the values of references now."""

    def watch_waits(self, watcher: WaitWatcher) -> None:  # noqa: B027 - optional: an engine may not see its waits
        """Call `watcher` whenever `get` or `wait` of this driver take long."""

    # ------------------------------------------------------------ tasks

    @abstractmethod
    def submit(self, function: TaskFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Returns:
        """Submit a task."""

    @abstractmethod
    def cancel(self, reference: ObjectRef[Any], *, force: bool, recursive: bool) -> None:
        """Cancel the task or call that makes an object."""

    @abstractmethod
    def cancel_generator(self, generator: ObjectRefGenerator[Any], *, force: bool, recursive: bool) -> None:
        """Cancel the task or call that makes the items of a generator."""

    def cancel_by_id(self, task: bytes, *, force: bool, recursive: bool) -> None:
        """Cancel a task or call that another process may have submitted."""
        raise NotImplementedError(f"The {self.name} engine cancels tasks by reference only.")

    @abstractmethod
    def is_cancelled(self) -> bool:
        """Return whether the running task was cancelled."""

    # ------------------------------------------------------------ actors

    @abstractmethod
    def create_actor(
        self, template: ActorTemplate, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> CreatedActor:
        """Create an actor, or find the existing one where `get_if_exists` allows it."""

    @abstractmethod
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

    @abstractmethod
    def kill(self, actor: bytes, *, no_restart: bool) -> None:
        """Kill an actor."""

    @abstractmethod
    def find_actor(self, name: str, namespace: str | None) -> tuple[bytes, ActorDescription]:
        """Return the id and the description of a named actor; raise ValueError if none has the name."""

    @abstractmethod
    def named_actors(self, *, all_namespaces: bool) -> list[dict[str, str]]:
        """Return the name and the namespace of each living named actor."""

    @abstractmethod
    def ship_actor(self, actor: bytes, keep: object) -> object:
        """Return a value to pickle with a handle, which `hold_actor` gets where the handle is unpickled."""

    @abstractmethod
    def hold_actor(self, actor: bytes, carried: object, *, weak: bool) -> object:
        """Return what keeps an actor alive for an unpickled handle; None if `weak`."""

    @abstractmethod
    def describe_own_actor(self) -> ActorDescription:
        """Return the description of the actor that the calling code belongs to."""

    @abstractmethod
    def actor_name(self) -> str:
        """Return the name of the actor that the calling code belongs to, "" if it has none."""

    @abstractmethod
    def actor_restarts(self) -> int:
        """Return how often the actor that the calling code belongs to was restarted."""

    @abstractmethod
    def exit_actor(self) -> None:
        """End the actor that the calling code belongs to, by an exception that passes through user code."""

    # ------------------------------------------------------------ placement groups

    @abstractmethod
    def create_placement_group(
        self,
        bundles: list[dict[str, float]],
        strategy: str,
        name: str,
        lifetime: str | None,
        labels: list[dict[str, str]],
    ) -> bytes:
        """Create a placement group without waiting for its resources; return its id."""

    @abstractmethod
    def remove_placement_group(self, id: bytes) -> None:
        """End the work that runs in a group, and release its resources."""

    @abstractmethod
    def placement_group_ready(self, id: bytes, value: object) -> ObjectRef[Any]:
        """Return a reference that becomes `value` once the group's resources are reserved."""

    @abstractmethod
    def placement_group_table(self) -> dict[str, dict[str, Any]]:
        """Return all groups by id, in the shape of Ray's table."""

    @abstractmethod
    def find_placement_group(self, name: str, namespace: str | None) -> bytes | None:
        """Return the id of the group with this name, or None."""

    @abstractmethod
    def current_placement_group(self) -> bytes | None:
        """Return the id of the group that the running task or actor is in, or None."""

    # ------------------------------------------------------------ state

    @abstractmethod
    def context(self) -> EngineContext:
        """Return the process, the task and the actor that the calling code runs in."""

    @abstractmethod
    def resources(self) -> dict[str, float]:
        """Return all resources of the cluster."""

    @abstractmethod
    def available(self) -> dict[str, float]:
        """Return the resources that are not in use."""

    @abstractmethod
    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes in the shape of Ray's table."""

    @abstractmethod
    def state(self, table: Table) -> list[dict[str, Any]]:
        """Return the rows of a table; raise NotImplementedError if the engine has a `native_state`."""

    @abstractmethod
    def object_store(self) -> dict[str, int]:
        """Return the size and the usage of the object store."""

    def publish(self, references: Sequence[ObjectRef[Any]]) -> None:
        """Make objects known to the state API that only this process knows; by default, it knows all of them."""
        return

    @abstractmethod
    def why(self, reference: ObjectRef[Any]) -> list[str]:
        """Explain what a reference waits for, one step per line."""

    def why_by_id(self, id: bytes) -> list[str] | None:
        """Do the same for the id of an object; return None if the engine explains references only."""
        return None

    def observe(self, view: View, *numbers: int) -> dict[str, Any] | None:
        """Return an answer that is cheap enough to be requested every second; None if the engine has none."""
        return None

    # ------------------------------------------------------------ this process

    def announce_breakpoint(self, stop: Breakpoint) -> bool:
        """Tell the driver that this worker waits for a debugger; return whether the driver has a terminal."""
        return False

    @abstractmethod
    def on_shutdown(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the engine is shut down."""

    @abstractmethod
    def shutdown(self) -> None:
        """Leave the session, and end it if this process started it."""
