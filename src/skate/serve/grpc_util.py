"""What a method that answers gRPC may ask for: the call's context, and a stream of messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Generic, TypeVar

__all__ = ["RayServegRPCContext", "gRPCInputStream"]

T = TypeVar("T")


class RayServegRPCContext:
    """A gRPC call as the replica sees it: who calls, and what is answered besides the message.

    A method gets it by having a parameter called `grpc_context`. What is set on it is sent with the answer.

    Args:
        grpc_context: What to take the facts from: a context of grpc's server, or anything with its methods.
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
        """Return what is known of the caller's authentication."""
        return self._auth_context

    def code(self) -> Any:
        """Return the `grpc.StatusCode` that was set, or None."""
        return self._code

    def details(self) -> str:
        """Return the text that goes with the code."""
        return self._details  # type: ignore[no-any-return]

    def invocation_metadata(self) -> list[tuple[str, str]]:
        """Return the metadata that the client sent."""
        return self._invocation_metadata

    def peer(self) -> str:
        """Return the client's address, such as 'ipv4:127.0.0.1:50000'."""
        return self._peer  # type: ignore[no-any-return]

    def peer_identities(self) -> bytes | None:
        """Return the names that the client has proved to have."""
        return self._peer_identities  # type: ignore[no-any-return]

    def peer_identity_key(self) -> str | None:
        """Return the property of `auth_context` that the client's names are found under."""
        return self._peer_identity_key  # type: ignore[no-any-return]

    def trailing_metadata(self) -> list[tuple[str, str]]:
        """Return the metadata that is sent after the answer."""
        return self._trailing_metadata

    def application(self) -> str | None:
        """Return the application that the client asked for."""
        return self._sent("application")

    def request_id(self) -> str | None:
        """Return the id of the request, if the client gave one."""
        return self._sent("request_id")

    def multiplexed_model_id(self) -> str | None:
        """Return the model that the client asked for."""
        return self._sent("multiplexed_model_id")

    def traceparent(self) -> str | None:
        """Return the client's span, as W3C's trace context writes it."""
        return self._sent("traceparent")

    def tracestate(self) -> str | None:
        """Return what tracing systems on the way added to the client's span."""
        return self._sent("tracestate")

    def set_code(self, code: Any) -> None:
        """Set the `grpc.StatusCode` that is answered, also if the method raises afterwards."""
        self._code = code

    def set_details(self, details: str) -> None:
        """Set the text that goes with the code."""
        self._details = details

    def set_compression(self, compression: Any) -> None:
        """Set how an answer of one message is compressed: a `grpc.Compression`."""
        self._compression = compression

    def set_trailing_metadata(self, trailing_metadata: list[tuple[str, str]]) -> None:
        """Set metadata that is sent after the answer; the id of the request is among it in any case."""
        self._trailing_metadata = [(key, value) for key, value in trailing_metadata]

    def _sent(self, wanted: str) -> str | None:
        return next((value for key, value in self._invocation_metadata if key == wanted), None)


class gRPCInputStream(Generic[T]):  # noqa: N801 - the name is Ray's
    """The messages that a client sends one after the other; iterate over it with `async for`.

    Args:
        request_iterator: Where they come from.
        cancel_event: Set when the client has gone.
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
        """Tell whether the client has gone, or `cancel` was called: nothing further comes."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Take nothing further."""
        self._cancelled.set()

    @property
    def is_exhausted(self) -> bool:
        """Whether the client has said that there is nothing further."""
        return self._is_exhausted
