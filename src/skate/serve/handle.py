"""Handles, which call deployments from Python."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

import msgspec

from skate.air import _arguments as arguments
from skate.serve._config.defaults import APP_NAME, DEFAULT
from skate.serve._router.responses import (
    DeploymentBroadcastResponse,
    DeploymentResponse,
    DeploymentResponseGenerator,
)
from skate.serve._router.runtime import current_runtime
from skate.serve._router.selection import ReplicaSelection, choose_replica
from skate.serve._runtime.ids import DeploymentID, ReplicaID, new_request_id
from skate.serve._wire.frames import Context
from skate.serve.context import _get_replica, _get_request

__all__ = [
    "DeploymentBroadcastResponse",
    "DeploymentHandle",
    "DeploymentResponse",
    "DeploymentResponseGenerator",
    "ReplicaSelection",
]

T = TypeVar("T")


_SERIALIZATIONS = ("cloudpickle", "pickle", "msgpack", "orjson", "noop")  # Ray's


class _Options(msgspec.Struct, frozen=True):
    """The options of a handle."""

    method_name: str = "__call__"
    multiplexed_model_id: str = ""
    session_id: str = ""
    stream: bool = False


def _check_option(name: str, value: Any) -> None:
    if name == "stream":
        arguments.flag(name, value)
    elif name.endswith("_serialization"):
        arguments.choice(name, value, _SERIALIZATIONS)
    elif name == "method_name":
        arguments.text(name, value, "the name of a method")
    else:
        arguments.instance(name, value, str, "a string")


class DeploymentHandle(Generic[T]):
    """Call a deployment: `handle.remote(...)`, or `handle.method.remote(...)`.

    `serve.run`, `serve.get_app_handle` and `serve.get_deployment_handle` return handles, and `bind` passes handles of
    other deployments to a deployment's constructor. Handles can be pickled.

    Example:
        >>> from skate import serve
        >>> @serve.deployment
        ... class Greeter:
        ...     def greet(self, name: str) -> str:
        ...         return f"Hello, {name}!"
        >>> handle = serve.run(Greeter.bind())
        >>> handle.greet.remote("you").result()
        'Hello, you!'
        >>> serve.shutdown()
    """

    def __init__(
        self, deployment_name: str, app_name: str = APP_NAME, *, _options: _Options | None = None
    ) -> None:
        self.deployment_id = DeploymentID(deployment_name, app_name)
        self._handle_options = _options or _Options()
        self._methods: dict[str, DeploymentHandle[Any]] = {}

    @property
    def deployment_name(self) -> str:
        """The name of the deployment."""
        return self.deployment_id.name

    @property
    def app_name(self) -> str:
        """The application that contains the deployment."""
        return self.deployment_id.app_name

    @property
    def is_initialized(self) -> bool:
        """Whether this process has called the deployment, or has prepared to."""
        from skate.serve._router import runtime

        return runtime.is_known(self.deployment_id)

    def running_replicas_populated(self) -> bool:
        """Return whether this process is connected to a replica of the deployment."""
        return current_runtime().has_replicas(self.deployment_id)

    def options(
        self,
        *,
        method_name: str | DEFAULT = DEFAULT.VALUE,
        multiplexed_model_id: str | DEFAULT = DEFAULT.VALUE,
        session_id: str | DEFAULT = DEFAULT.VALUE,
        stream: bool | DEFAULT = DEFAULT.VALUE,
        _prefer_local_routing: bool | DEFAULT = DEFAULT.VALUE,
        _by_reference: bool | DEFAULT = DEFAULT.VALUE,
        request_serialization: str | DEFAULT = DEFAULT.VALUE,
        response_serialization: str | DEFAULT = DEFAULT.VALUE,
    ) -> DeploymentHandle[T]:
        """Return a copy of the handle with other options.

        Args:
            method_name: The method to call instead of `__call__`.
            multiplexed_model_id: The requested model. The request goes to a replica that has loaded it.
            session_id: The session of the request, for routers that keep a session at one replica.
            stream: Whether the method is a generator and the response iterates over its values.
            request_serialization: Has no effect, because values are always pickled.
            response_serialization: Has no effect, because values are always pickled.
        """
        given = {
            "method_name": method_name,
            "multiplexed_model_id": multiplexed_model_id,
            "session_id": session_id,
            "stream": stream,
        }
        for name, each in {
            **given,
            "request_serialization": request_serialization,
            "response_serialization": response_serialization,
        }.items():
            if each is not DEFAULT.VALUE:
                _check_option(name, each)
        changed = {name: value for name, value in given.items() if value is not DEFAULT.VALUE}
        options = msgspec.structs.replace(self._handle_options, **changed)
        return DeploymentHandle(self.deployment_name, self.app_name, _options=options)

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Call the deployment and return a response without waiting.

        Returns:
            A `DeploymentResponse`, or a `DeploymentResponseGenerator` with `options(stream=True)`.
        """
        options = self._handle_options
        kind = DeploymentResponseGenerator if options.stream else DeploymentResponse
        context = _context_of(self.deployment_id, options)
        return kind(current_runtime(), self.deployment_id, context, options.method_name, (args, kwargs))

    def choose_replica(self, *args: Any, **kwargs: Any) -> AbstractAsyncContextManager[ReplicaSelection]:
        """Choose the replica for a request. `dispatch` sends the request.

        The replica reserves room until then, or until the context exits:

            async with handle.choose_replica(prompt) as selection:
                response = handle.dispatch(selection, prompt)
                ...

        Args:
            *args: The arguments of the request, if the request router uses them.
            **kwargs: The keyword arguments of the request, if the request router uses them.

        Returns:
            An asynchronous context manager. The handle's options determine the method to call and whether its values
            are streamed.
        """
        options = self._handle_options
        return choose_replica(
            current_runtime(),
            self.deployment_id,
            _context_of(self.deployment_id, options),
            options.method_name,
            options.stream,
            (args, kwargs),
        )

    def dispatch(self, selection: ReplicaSelection, *args: Any, **kwargs: Any) -> Any:
        """Send a request to a replica chosen by `choose_replica`, and return a response without waiting.

        Args:
            selection: The result of `choose_replica`.
            *args: The arguments of the call.
            **kwargs: The keyword arguments of the call.

        Returns:
            A `DeploymentResponse` or a `DeploymentResponseGenerator`, as `remote` does. It raises a
            `ReplicaUnavailableError` if the replica is gone.

        Raises:
            ValueError: If the selection belongs to another deployment.
            RuntimeError: If the selection has already been dispatched.
        """
        arguments.instance(
            "selection", selection, ReplicaSelection, "what choose_replica() gave, a ReplicaSelection"
        )
        reservation = selection._reservation
        if reservation is None or selection._deployment_id != self.deployment_id:
            raise ValueError(
                f"The selection belongs to {selection._deployment_id}, but this handle calls {self.deployment_id}: "
                "use the handle whose choose_replica() returned it."
            )
        if selection._dispatched:
            raise RuntimeError(
                "The selection has already been dispatched: choose a replica for each request."
            )
        selection._dispatched = True
        kind = DeploymentResponseGenerator if selection._stream else DeploymentResponse
        return kind(
            current_runtime(),
            self.deployment_id,
            reservation.context,
            selection._method_name,
            (args, kwargs),
            reservation,
        )

    def broadcast(self, method_name: str, *args: Any, **kwargs: Any) -> DeploymentBroadcastResponse:
        """Call a method of every running replica, even of full ones, and return their responses.

        Use it for rare notifications to all replicas, such as clearing a cache or reloading a setting.

        Args:
            method_name: The method to call.
            *args: The arguments of the call.
            **kwargs: The keyword arguments of the call.
        """
        arguments.text("method_name", method_name, "the name of a method")
        context = _context_of(self.deployment_id, self._handle_options)
        return DeploymentBroadcastResponse(
            current_runtime(), self.deployment_id, context, method_name, (args, kwargs)
        )

    def shutdown(self) -> None:
        """Do nothing. Handles of a process share connections, which close with the session."""

    async def shutdown_async(self) -> None:
        """Do nothing: see `shutdown`."""

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Raise TypeError: handles are called with `remote`."""
        method = self._handle_options.method_name
        call = "handle.remote(...)" if method == "__call__" else f"handle.{method}.remote(...)"
        raise TypeError(f"A DeploymentHandle cannot be called directly: use {call}.")

    def __getattr__(self, name: str) -> DeploymentHandle[Any]:
        if name.startswith(("_ipython_", "_repr_")) or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)  # notebooks, pickle and copy look up such methods
        method = self._methods.get(name)
        if method is None:
            method = self._methods[name] = self.options(method_name=name)
        return method

    def __reduce__(self) -> Any:
        return _rebuild, (self.deployment_name, self.app_name, msgspec.structs.astuple(self._handle_options))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, DeploymentHandle)
            and self.deployment_id == other.deployment_id
            and self._handle_options == other._handle_options
        )

    def __hash__(self) -> int:
        return hash((self.deployment_id, self._handle_options.method_name))

    def __repr__(self) -> str:
        return f"DeploymentHandle(deployment='{self.deployment_name}', app='{self.app_name}')"

    def _repr_html_(self) -> str:
        from skate._api.html_tables import facts_html  # only notebooks need it

        method = self._handle_options.method_name
        return facts_html(
            "DeploymentHandle",
            {
                "deployment": self.deployment_name,
                "application": self.app_name,
                "method": None if method == "__call__" else method,
            },
        )


_held: dict[ReplicaID, set[DeploymentID]] = {}


def _note_held(id: DeploymentID) -> None:
    """Record that the current replica holds a handle to a deployment."""
    replica = _get_replica()
    if replica is not None:
        _held.setdefault(replica.replica_id, set()).add(id)


def _held_by(replica: ReplicaID) -> list[DeploymentID]:
    """Return the deployments that a replica in this process holds handles to."""
    return sorted(_held.get(replica, ()))


def _rebuild(name: str, app: str, options: tuple[Any, ...]) -> DeploymentHandle[Any]:
    _note_held(DeploymentID(name, app))
    return DeploymentHandle(name, app, _options=_Options(*options))


def _context_of(id: DeploymentID, options: _Options) -> Context:
    """Return the context of a new request, which inherits from the request that makes it."""
    parent = _get_request()
    if parent is None:
        return Context(new_request_id(), id.app_name, "", options.multiplexed_model_id, options.session_id)
    return Context(
        parent.request_id or new_request_id(),
        id.app_name,
        parent.full_route,
        options.multiplexed_model_id,
        options.session_id or parent.session_id,
        parent.retry,
        parent.trace,
    )
