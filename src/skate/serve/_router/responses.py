"""Responses to calls through handles: a value, a stream of values, or one value per replica."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

from skate import ObjectRef
from skate._api.payloads import pack, pack_call, unpack
from skate.air import _arguments as arguments
from skate.serve._router.requests import OutgoingRequest, StreamingRequest, UnaryRequest
from skate.serve._router.result import Result
from skate.serve._router.runtime import Runtime
from skate.serve._router.selection import Reservation
from skate.serve._runtime.ids import DeploymentID
from skate.serve._wire.frames import Context, Reply
from skate.serve.context import _get_request, _in_event_loop
from skate.serve.exceptions import RayServeException, ReplicaUnavailableError, RequestCancelledError

__all__ = ["DeploymentBroadcastResponse", "DeploymentResponse", "DeploymentResponseGenerator"]

T = TypeVar("T")
CallArgs = tuple[tuple[Any, ...], dict[str, Any]]


class _Response:
    """A request made through a handle."""

    def __init__(self, runtime: Runtime, id: DeploymentID, context: Context) -> None:
        self._runtime = runtime
        self._id = id
        self._context = context
        self._call: OutgoingRequest | None = None
        self._is_cancelled = False
        parent = _get_request()
        self._parent = parent
        if parent is not None:
            parent.children.add(self)

    @property
    def request_id(self) -> str:
        """The id of the request, as in logs and in the request's context."""
        return self._context.request_id

    def cancelled(self) -> bool:
        """Return whether the request was cancelled."""
        return self._is_cancelled

    def cancel(self) -> None:
        """Cancel the request: remove it from the queue, or cancel it at the replica.

        A request that is done is not affected.
        """
        if self._runtime.serve_loop.is_current:
            self._cancel()
        else:
            self._runtime.serve_loop.call(self._cancel)

    def _cancel(self) -> None:
        if self._is_over:
            return
        self._is_cancelled = True
        if self._call is not None:
            self._runtime.router(self._id).cancel(self._call)
        self._fail(RequestCancelledError(self.request_id))

    @property
    def _is_over(self) -> bool:
        raise NotImplementedError

    def _fail(self, error: BaseException) -> None:
        raise NotImplementedError

    def _forget(self) -> None:
        if self._parent is not None:
            self._parent.children.discard(self)

    def _submit(
        self,
        make: Callable[[bytes | None, CallArgs | None], OutgoingRequest],
        call_args: CallArgs,
        reservation: Reservation | None = None,
    ) -> None:
        """Send the request, after the responses among its arguments have arrived.

        Args:
            make: Creates the request from packed or unpacked arguments.
            call_args: The arguments of the call.
            reservation: A reservation to use; without one, the router chooses a replica.
        """
        args, kwargs = call_args
        waits = delivered_args = False
        for each in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(each, DeploymentResponse):
                waits = True
            elif isinstance(each, ObjectRef):
                delivered_args = True
        try:
            packed = None if waits or delivered_args else pack_call(args, kwargs)
        except TypeError as error:
            raise TypeError(
                f"Could not serialize the arguments of a call of {self._id}: {error}. Create such objects inside the "
                "deployment."
            ) from error
        runtime = self._runtime

        def send(packed: bytes | None, call_args: CallArgs | None) -> None:
            if not self._is_over:
                self._call = call = make(packed, call_args)
                if reservation is None:
                    runtime.router(self._id).submit(call)
                else:
                    reservation.dispatch(call)

        async def wait_then_send() -> None:
            try:
                resolved = await _resolve(call_args)
                # Small values travel with the call; values with references have to go through the engine.
                small = None if _has_references(resolved) else pack(resolved)
            except ReplicaUnavailableError as error:
                self._fail(
                    RayServeException(
                        f"{self._id} was not called because an argument is not available: {error}"
                    )
                )
                return
            except BaseException as error:
                self._fail(error)
                return
            send(small, None if small is not None else resolved)

        if waits:
            if runtime.serve_loop.is_current:
                runtime.retain(asyncio.ensure_future(wait_then_send()))
            else:
                runtime.serve_loop.submit(wait_then_send())
        elif runtime.serve_loop.is_current:
            send(packed, None if packed is not None else call_args)
        else:
            runtime.serve_loop.call(send, packed, None if packed is not None else call_args)

    def __reduce__(self) -> Any:
        raise RayServeException(
            f"`{type(self).__name__}` is not serializable inside another object: pass it as an argument of a "
            "handle's call, or get its value first."
        )


class DeploymentResponse(_Response, Generic[T]):
    """The response to a call. Await it, call `result()`, or pass it to another call as an argument.

    A large value that is passed on is not fetched here: the next replica reads it from shared memory.
    """

    def __init__(
        self,
        runtime: Runtime,
        id: DeploymentID,
        context: Context,
        method: str,
        call_args: CallArgs,
        reservation: Reservation | None = None,
    ) -> None:
        super().__init__(runtime, id, context)
        self._result = Result()

        def make(packed: bytes | None, call_args: CallArgs | None) -> OutgoingRequest:
            return UnaryRequest(context, method, packed, call_args, self._done)

        self._submit(make, call_args, reservation)

    def result(self, *, timeout_s: float | None = None, _skip_asyncio_check: bool = False) -> T:
        """Wait for the value and return it.

        Args:
            timeout_s: The longest time to wait, in seconds; None for no limit.

        Raises:
            TimeoutError: If no value arrives in time. The request continues.
            RuntimeError: If called in an event loop, which it would block. Await the response there.
        """
        if not _skip_asyncio_check and _in_event_loop():
            raise RuntimeError(
                "result() blocks, and should not be called from within an `asyncio` event loop: write `await response`."
            )
        if timeout_s is not None:
            arguments.real("timeout_s", timeout_s, unit="seconds", optional=True)
        try:
            self._result.wait(timeout_s)
        except TimeoutError:
            raise TimeoutError(
                f"The call of {self._id} gave no answer within {timeout_s:g} s; "
                f"the request {self.request_id} continues."
            ) from None
        value: T = self._result.value()
        return value

    def __await__(self) -> Generator[Any, None, T]:
        return self._value().__await__()

    async def _value(self) -> T:
        await self._result.ready()
        value: T = await self._result.value_async()
        return value

    def _to_object_ref_sync(self, **_: Any) -> ObjectRef[T]:
        """Wait for the value, and return a reference to it."""
        import skate

        self._result.wait(None)
        reference: ObjectRef[T] = self._result.reference or skate.put(self._result.value())
        return reference

    async def _to_object_ref(self, **_: Any) -> ObjectRef[T]:
        """Wait for the value, and return a reference to it."""
        import skate

        await self._result.ready()
        reference: ObjectRef[T] = self._result.reference or skate.put(self._result.value())
        return reference

    @property
    def _is_over(self) -> bool:
        return self._result.is_set

    def _fail(self, error: BaseException) -> None:
        self._result.set_error(error)
        self._forget()

    def _done(self, call: UnaryRequest, answer: Reply | Exception | bytes) -> None:
        _set_result(self._result, call, answer)
        self._forget()


class DeploymentResponseGenerator(_Response, Generic[T]):
    """The response to a call of a generator: iterate over its values with `for` or `async for`."""

    def __init__(
        self,
        runtime: Runtime,
        id: DeploymentID,
        context: Context,
        method: str,
        call_args: CallArgs,
        reservation: Reservation | None = None,
    ) -> None:
        super().__init__(runtime, id, context)
        self._stream: StreamingRequest | None = None
        self._started = Result()  # set when the request has been created, or has failed
        self._is_finished = False

        def make(packed: bytes | None, call_args: CallArgs | None) -> OutgoingRequest:
            self._stream = StreamingRequest(context, method, packed, call_args)
            self._started.set_packed(b"")
            return self._stream

        self._submit(make, call_args, reservation)

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if _in_event_loop():
            raise RuntimeError(
                "next() blocks, and should not be called from within an `asyncio` event loop: write `async for`."
            )
        if self._is_finished:
            raise StopIteration
        self._started.wait(None)
        stream = self._require_stream()
        while not stream.items:
            items_arrived = stream.items_arrived
            stream.is_awaited = True
            if not stream.items:
                items_arrived.wait(None)
        item = self._next_item(stream)
        if item is None:
            raise StopIteration
        value: T
        if isinstance(item, bytes):
            value = unpack(item)
        else:
            item.wait(None)
            value = item.value()
        return value

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        if self._is_finished:
            raise StopAsyncIteration
        if not self._started.is_set:
            await self._started.ready()
        stream = self._require_stream()
        while not stream.items:
            items_arrived = stream.items_arrived
            stream.is_awaited = True
            if not stream.items:
                await items_arrived.ready()
        item = self._next_item(stream)
        if item is None:
            raise StopAsyncIteration
        value: T
        if isinstance(item, bytes):
            value = unpack(item)
        else:
            await item.ready()
            value = await item.value_async()
        return value

    def result(self, *, timeout_s: float | None = None, _skip_asyncio_check: bool = False) -> Any:
        """Raise TypeError, because a stream has no single result."""
        raise TypeError(
            "`DeploymentResponseGenerator` doesn't support `result()`. Use `for` or `async for` to get its values."
        )

    def __await__(self) -> Any:
        raise TypeError(
            "A `DeploymentResponseGenerator` cannot be awaited: use `async for` to get its values."
        )

    def _require_stream(self) -> StreamingRequest:
        if self._stream is None:
            self._is_finished = True
            raise self._started.error or RequestCancelledError(self.request_id)
        return self._stream

    def _next_item(self, stream: StreamingRequest) -> bytes | Result | None:
        item = stream.items.popleft()
        if item is None:
            self._is_finished = True
        elif self._runtime.serve_loop.is_current:
            stream.taken()
        else:
            self._runtime.serve_loop.call(stream.taken)
        return item

    @property
    def _is_over(self) -> bool:
        return self._is_finished or (self._started.error is not None)

    def _fail(self, error: BaseException) -> None:
        if self._stream is None:
            self._started.set_error(error)
        else:
            assert isinstance(error, Exception)
            self._stream.failed(error)
        self._forget()


class DeploymentBroadcastResponse:
    """The responses of all replicas to one call."""

    def __init__(
        self, runtime: Runtime, id: DeploymentID, context: Context, method: str, call_args: CallArgs
    ) -> None:
        packed = pack(call_args)
        delivered_args = None if packed is not None else call_args

        async def send() -> list[Result]:
            router = runtime.router(id)
            results: list[Result] = []
            for connection in await router.all_connections():
                result = Result()
                results.append(result)
                call = UnaryRequest(
                    context, method, packed, delivered_args, partial(_set_result, result), force=True
                )
                connection.begin(call)
            return results

        self._sent = runtime.serve_loop.submit(send())

    def results(self, *, timeout_s: float | None = None, return_exceptions: bool = False) -> list[Any]:
        """Wait for all results and return them.

        Args:
            timeout_s: The longest time to wait for all of them, in seconds; None for no limit.
            return_exceptions: Whether to return errors in place of results instead of raising the first.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        found: list[Any] = []
        for result in self._sent.result(timeout_s):
            try:
                result.wait(None if end is None else end - time.monotonic())
                found.append(result.value())
            except Exception as error:
                if not return_exceptions:
                    raise
                found.append(error)
        return found

    async def results_async(
        self, *, timeout_s: float | None = None, return_exceptions: bool = False
    ) -> list[Any]:
        """Wait for all results in an event loop: see `results`."""

        async def one(result: Result) -> Any:
            await result.ready()
            return await result.value_async()

        async with asyncio.timeout(timeout_s):
            results = await asyncio.wrap_future(self._sent)
            answers = [one(result) for result in results]
            return list(await asyncio.gather(*answers, return_exceptions=return_exceptions))


def _set_result(result: Result, call: UnaryRequest, answer: Reply | Exception | bytes) -> None:
    """Set a result to the answer of a replica."""
    if result.is_set:
        return
    if not isinstance(answer, Reply):
        result.set_error(unpack(answer) if isinstance(answer, bytes) else answer)
    elif answer.value is not None:
        result.set_packed(answer.value)
    elif call.connection is not None:
        call.connection.fetch_result(result, call.id)


async def _resolve(call_args: CallArgs) -> CallArgs:
    """Replace responses by their values, or by references to large values."""

    async def one(value: Any) -> Any:
        if not isinstance(value, DeploymentResponse):
            return value
        result = value._result
        await result.ready()
        if result.reference is not None:
            return result.reference
        return result.value()

    args, kwargs = call_args
    return (
        tuple([await one(each) for each in args]),
        {name: await one(each) for name, each in kwargs.items()},
    )


def _has_references(call_args: CallArgs) -> bool:
    args, kwargs = call_args
    return any(isinstance(each, ObjectRef) for each in (*args, *kwargs.values()))
