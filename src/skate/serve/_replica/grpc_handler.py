"""gRPC calls in a replica: encoded messages in, a call of the user's method, encoded messages out."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from skate.serve._config import import_paths
from skate.serve._replica.user_code import UserCode
from skate.serve._wire import grpc_status as status
from skate.serve._wire.frames import Item, Metadata, Rpc, RpcEnd
from skate.serve.exceptions import RayServeException
from skate.serve.grpc_util import RayServegRPCContext, gRPCInputStream

if TYPE_CHECKING:
    from skate.serve._replica.running_request import RunningRequest

__all__ = ["GrpcHandler"]

logger = logging.getLogger("skate.serve")

_CONTEXT = "grpc_context"  # the parameter that receives the call's context


class GrpcHandler:
    """Answer gRPC calls with the deployment's methods of the same names."""

    def __init__(self, code: UserCode) -> None:
        self._code = code
        self._codecs: dict[bytes, tuple[Callable[[bytes], Any], Callable[[Any], bytes]]] = {}
        self._wants_context: dict[str, bool] = {}

    async def answer(self, running: RunningRequest, frame: Rpc, load: Callable[[], int]) -> None:
        """Answer a call. Errors become statuses."""
        context = running.context.grpc_context = RayServegRPCContext(_CallContext(frame))
        body = b""
        error: Exception | None = None
        try:
            body = await self._call(running, frame, context)
        except Exception as raised:
            logger.exception("gRPC method %s of request %s failed.", frame.method, frame.context.request_id)
            error = running.error = raised
        code, details = self._status(context, error)
        running.is_answered = True
        compression = None if context._compression is None else int(context._compression)
        running.link.send(
            RpcEnd(frame.id, load(), code, details, context.trailing_metadata(), body, compression)
        )

    def _status(self, context: RayServegRPCContext, error: Exception | None) -> tuple[int, str]:
        """Return the status and details of an answer. Values set on the context take precedence."""
        try:
            chosen = None if context.code() is None else status.code_number(context.code())
        except TypeError as wrong:
            return status.INTERNAL, str(wrong)
        explicit = status.shorten(str(context.details() or ""))
        if error is None:
            return chosen or status.OK, explicit
        code, details = status.status_of(error)
        return chosen or code, explicit or details

    async def _call(self, running: RunningRequest, frame: Rpc, context: RayServegRPCContext) -> bytes:
        read, write = self._codec(frame.codec)
        try:
            function, _ = self._code.method(frame.method)
        except RayServeException as missing:
            context.set_code(status.NOT_FOUND)
            raise missing
        cancelled = asyncio.Event()
        argument = (
            gRPCInputStream(_messages(running, read), cancel_event=cancelled)
            if frame.more
            else read(frame.body)
        )
        named = {_CONTEXT: context} if self._takes_context(frame.method, function) else {}
        try:
            result = await self._code.call(frame.method, (argument,), named)
            streams = hasattr(result, "__next__") or hasattr(result, "__anext__")
            if streams != frame.stream:
                raise TypeError(_mismatch(frame.method, streams))
            if not streams:
                return write(result)
            await self._stream(running, result, write)
            return b""
        finally:
            cancelled.set()

    async def _stream(self, running: RunningRequest, produced: Any, write: Callable[[Any], bytes]) -> None:
        link = running.link
        items = self._code.items(produced)
        try:
            async for item in items:
                await running.window.take()
                link.send_unbuffered(Item(running.id, write(item)))
                if link.is_congested:
                    await link.drain()
        finally:
            await items.aclose()  # type: ignore[attr-defined]  # an async generator, closed immediately

    def _codec(self, packed: bytes) -> tuple[Callable[[bytes], Any], Callable[[Any], bytes]]:
        found = self._codecs.get(packed)
        if found is None:
            found = self._codecs[packed] = import_paths.unpack(packed)
        return found

    def _takes_context(self, name: str, function: Callable[..., Any]) -> bool:
        found = self._wants_context.get(name)
        if found is None:
            found = self._wants_context[name] = _CONTEXT in inspect.signature(function).parameters
        return found


async def _messages(running: RunningRequest, read: Callable[[bytes], Any]) -> AsyncIterator[Any]:
    while (chunk := await running.next_chunk()).more:
        yield read(chunk.data)


def _mismatch(method: str, streams: bool) -> str:
    if streams:
        return (
            f"The gRPC method '{method}' returns one message, but the deployment's method yields: return one."
        )
    return f"The gRPC method '{method}' returns a stream, but the deployment's method returned one value: use yield."


class _CallContext:
    """A call with the interface of grpc's server context."""

    def __init__(self, frame: Rpc) -> None:
        self._frame = frame

    def auth_context(self) -> dict[str, Any]:
        found: dict[str, Any] = self._frame.auth.get("context", {})
        return found

    def code(self) -> None:
        return None

    def details(self) -> str:
        return ""

    def invocation_metadata(self) -> Metadata:
        return self._frame.metadata

    def peer(self) -> str:
        return self._frame.peer

    def peer_identities(self) -> Any:
        return self._frame.auth.get("identities")

    def peer_identity_key(self) -> Any:
        return self._frame.auth.get("identity_key")

    def trailing_metadata(self) -> Metadata:
        return []
