"""The context and the message stream of gRPC calls in a replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Generic, TypeVar

__all__ = ["RayServegRPCContext", "gRPCInputStream"]

T = TypeVar("T")


class RayServegRPCContext:
    """The context of a gRPC call in a replica.

    A method receives it if it has a parameter `grpc_context`. Values set on the context are sent with the answer.

    Args:
        grpc_context: A context of grpc's server, or an object with the same methods.
    """

    def __init__(self, grpc_context: Any) -> None:
        self._auth_context = dict(grpc_context.auth_context())
        self._code = grpc_context.code()
        self._details = grpc_context.details()
        self._invocation_metadata = [(key, value) for key, value in grpc_context.invocation_metadata() or ()]
        self._peer = grpc_context.peer()
        self._peer_identities = grpc_context.peer_identities()
        self._peer_identity_key = grpc_context.peer_identity_key()
        self._trailing_metadata = [(key, value) for key, value in grpc_context.trailing_metadata() or ()]
        self._compression: Any = None

    def auth_context(self) -> dict[str, Any]:
        """Return the authentication properties of the caller."""
        return self._auth_context

    def code(self) -> Any:
        """Return the `grpc.StatusCode` that was set, or None."""
        return self._code

    def details(self) -> str:
        """Return the details of the status."""
        return self._details  # type: ignore[no-any-return]

    def invocation_metadata(self) -> list[tuple[str, str]]:
        """Return the metadata that the client sent."""
        return self._invocation_metadata

    def peer(self) -> str:
        """Return the client's address, such as 'ipv4:127.0.0.1:50000'."""
        return self._peer  # type: ignore[no-any-return]

    def peer_identities(self) -> bytes | None:
        """Return the authenticated identities of the client."""
        return self._peer_identities  # type: ignore[no-any-return]

    def peer_identity_key(self) -> str | None:
        """Return the key of the client's identities in `auth_context`."""
        return self._peer_identity_key  # type: ignore[no-any-return]

    def trailing_metadata(self) -> list[tuple[str, str]]:
        """Return the metadata that follows the answer."""
        return self._trailing_metadata

    def application(self) -> str | None:
        """Return the application that the client named."""
        return self._sent("application")

    def request_id(self) -> str | None:
        """Return the request id that the client sent, or None."""
        return self._sent("request_id")

    def multiplexed_model_id(self) -> str | None:
        """Return the model that the client named."""
        return self._sent("multiplexed_model_id")

    def traceparent(self) -> str | None:
        """Return the client's span in W3C trace context format."""
        return self._sent("traceparent")

    def tracestate(self) -> str | None:
        """Return the vendor-specific state of the client's span."""
        return self._sent("tracestate")

    def set_code(self, code: Any) -> None:
        """Set the `grpc.StatusCode` of the answer, even if the method raises afterwards."""
        self._code = code

    def set_details(self, details: str) -> None:
        """Set the details of the status."""
        self._details = details

    def set_compression(self, compression: Any) -> None:
        """Set the `grpc.Compression` of a unary answer."""
        self._compression = compression

    def set_trailing_metadata(self, trailing_metadata: list[tuple[str, str]]) -> None:
        """Set the metadata that follows the answer. It always contains the request id, too."""
        self._trailing_metadata = [(key, value) for key, value in trailing_metadata]

    def _sent(self, wanted: str) -> str | None:
        return next((value for key, value in self._invocation_metadata if key == wanted), None)


class gRPCInputStream(Generic[T]):  # noqa: N801 - the name is Ray's
    """The stream of a client's messages; iterate over it with `async for`.

    Args:
        request_iterator: The messages.
        cancel_event: Set when the client has disconnected.
    """

    def __init__(
        self, request_iterator: AsyncIterator[T], *, cancel_event: asyncio.Event | None = None
    ) -> None:
        self._messages = request_iterator
        self._cancelled = cancel_event or asyncio.Event()
        self._is_exhausted = False

    def __aiter__(self) -> gRPCInputStream[T]:
        return self

    async def __anext__(self) -> T:
        if self._is_exhausted or self.is_cancelled():
            raise StopAsyncIteration
        try:
            return await anext(self._messages)
        except StopAsyncIteration:
            self._is_exhausted = True
            raise

    def is_cancelled(self) -> bool:
        """Return whether the client disconnected or `cancel` was called."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """End the iteration."""
        self._cancelled.set()

    @property
    def is_exhausted(self) -> bool:
        """Whether the client has ended the stream."""
        return self._is_exhausted
