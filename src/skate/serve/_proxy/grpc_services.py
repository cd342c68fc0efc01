"""The gRPC services of the proxy: the user's, Serve's own, and reflection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc  # type: ignore[import-untyped]  # grpc has no type hints

from skate.serve.generated import serve_pb2, serve_pb2_grpc

if TYPE_CHECKING:
    from skate.serve._proxy.grpc_server import GrpcServer

__all__ = ["InternalServices", "UserServices"]


class UserServices(grpc.GenericRpcHandler):  # type: ignore[misc]
    """The services of the configured servicer functions. Each method forwards to the deployment's method."""

    def __init__(self, server: GrpcServer) -> None:
        self._server = server
        self._given: list[grpc.GenericRpcHandler] = []
        self._handlers: dict[str, grpc.RpcMethodHandler | None] = {}

    def add(self, add_servicer_to_server: Callable[[Any, Any], None]) -> None:
        """Add the services of a servicer function."""
        add_servicer_to_server(_AnyServicer(), self)

    def add_generic_rpc_handlers(self, handlers: tuple[grpc.GenericRpcHandler, ...]) -> None:
        """Add handlers. Servicer functions call it."""
        self._given.extend(handlers)

    def add_registered_method_handlers(self, service_name: str, handlers: dict[str, Any]) -> None:
        """Do nothing. Servicer functions register the same handlers again for newer servers."""

    @property
    def names(self) -> list[str]:
        """The names of the services."""
        return [each.service_name() for each in self._given if isinstance(each, grpc.ServiceRpcHandler)]

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return the handler of a method, or None if no service has it."""
        path = handler_call_details.method
        if path not in self._handlers:
            found = next(
                (given for each in self._given if (given := each.service(handler_call_details))), None
            )
            if found is None:
                return None  # not cached, because clients choose the path
            self._handlers[path] = self._forwarding_handler(path, found)
        return self._handlers[path]

    def _forwarding_handler(self, path: str, given: Any) -> grpc.RpcMethodHandler:
        codec = self._server.codec(given)

        async def answer(request: Any, context: Any) -> bytes:
            return await self._server.answer(path, codec, given, request, context)

        async def answer_stream(request: Any, context: Any) -> None:
            await self._server.answer(path, codec, given, request, context)

        # Without serializers, messages stay encoded bytes.
        taken = "stream" if given.request_streaming else "unary"
        kind = f"{taken}_{'stream' if given.response_streaming else 'unary'}_rpc_method_handler"
        made: grpc.RpcMethodHandler = getattr(grpc, kind)(
            answer_stream if given.response_streaming else answer
        )
        return made

    def add_reflection(self, server: Any, own: InternalServices) -> None:
        """Enable server reflection if its package is installed."""
        try:
            from grpc_reflection.v1alpha import reflection  # type: ignore[import-untyped]
        except ImportError:
            return
        from google.protobuf import descriptor_pool  # type: ignore[import-untyped]

        names = (*own.names, *self.names, reflection.SERVICE_NAME)
        pools = _Pools(serve_pb2.DESCRIPTOR.pool, descriptor_pool.Default())
        reflection.enable_server_reflection(names, server, pool=pools)


class _AnyServicer:
    """A servicer with any method, none of which is called."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return self.__call__

    def __call__(self, *_: Any) -> None:
        raise NotImplementedError


class InternalServices(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Serve's own services: the list of applications, and the health check."""

    def __init__(self, server: GrpcServer) -> None:
        self._server = server
        self._handler: grpc.GenericRpcHandler | None = None
        serve_pb2_grpc.add_RayServeAPIServiceServicer_to_server(self, self)

    names = ("ray.serve.RayServeAPIService",)

    def add_generic_rpc_handlers(self, handlers: tuple[grpc.GenericRpcHandler, ...]) -> None:
        """Store the handler of these services."""
        (self._handler,) = handlers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return the handler of a method."""
        assert self._handler is not None
        return self._handler.service(handler_call_details)

    async def ListApplications(self, request: Any, context: Any) -> Any:  # noqa: N802 - the service defines the name
        """Return the names of all applications."""
        return serve_pb2.ListApplicationsResponse(application_names=self._server.applications)

    async def Healthz(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return that the proxy is healthy."""
        return serve_pb2.HealthzResponse(message="success")


class _Pools:
    """Several descriptor pools, searched in order."""

    def __init__(self, *pools: Any) -> None:
        self._pools = pools

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def ask(*args: Any) -> Any:
            for pool in self._pools[:-1]:
                try:
                    return getattr(pool, name)(*args)
                except KeyError:
                    continue
            return getattr(self._pools[-1], name)(*args)

        return ask
