"""Generators of references, which tasks with several results return."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from skate._base.object_ref import ObjectRef

T = TypeVar("T")


class Stream(Protocol):
    """An engine's side of a generator: a stream of references."""

    @property
    def task(self) -> bytes:
        """The id of the task or call that runs the generator."""

    def next(self, timeout: float | None) -> ObjectRef[Any] | None:
        """Return the next reference, or None after `timeout`; raise StopIteration at the end."""

    async def next_async(self) -> ObjectRef[Any]:
        """Return the next reference; raise StopAsyncIteration at the end."""

    def ready(self) -> bool:
        """Return whether `next` would return (or raise) at once."""

    def finished(self) -> bool:
        """Return whether all references have been taken."""

    def completed(self) -> ObjectRef[Any]:
        """Return a reference that is ready when the generator has ended."""

    def close(self) -> None:
        """Drop the items that were not taken."""


class ObjectRefGenerator(Generic[T]):
    """Iterates over the references of a streaming generator, as they become available.

    `next(generator)` blocks until the next item exists and returns a reference to it. Use `async for` in coroutines.
    """

    def __init__(self, stream: Stream, first: ObjectRef[Any] | None = None) -> None:
        self._stream = stream
        self._generator_ref = first

    def __iter__(self) -> ObjectRefGenerator[T]:
        return self

    def __next__(self) -> ObjectRef[T]:
        reference = self._stream.next(None)
        assert reference is not None
        return reference

    def __aiter__(self) -> AsyncIterator[ObjectRef[T]]:
        return self

    async def __anext__(self) -> ObjectRef[T]:
        return await self._stream.next_async()

    def _next_sync(self, timeout_s: float | None = None) -> ObjectRef[T]:
        """Return the next reference, or the nil reference after `timeout_s`."""
        from skate._base.object_ref import ObjectRef

        timeout = None if timeout_s is None or timeout_s < 0 else timeout_s
        reference = self._stream.next(timeout)
        return ObjectRef.nil() if reference is None else reference

    async def _next_async(self, timeout_s: float | None = None) -> ObjectRef[T]:
        import asyncio

        from skate._base.object_ref import ObjectRef

        try:
            return await asyncio.wait_for(self._stream.next_async(), timeout_s)
        except TimeoutError:
            return ObjectRef.nil()

    def completed(self) -> ObjectRef[Any]:
        """Return a reference that is ready once the generator has ended; getting it raises its error."""
        return self._stream.completed()

    def next_ready(self) -> bool:
        """Return whether the next item exists, so that `next` would not block."""
        return self._stream.ready() and not self._stream.finished()

    def is_finished(self) -> bool:
        """Return whether the generator has ended and all items have been taken."""
        return self._stream.finished()

    def send(self, value: Any) -> Any:
        """Not supported: items cannot be sent to a generator in another process."""
        raise NotImplementedError("`gen.send` is not supported: the generator runs in another process.")

    def throw(self, *error: Any) -> Any:
        """Not supported: cancel the generator with `skate.cancel` instead."""
        raise NotImplementedError("`gen.throw` is not supported: use skate.cancel(generator).")

    def close(self) -> None:
        """Not supported: cancel the generator with `skate.cancel` instead."""
        raise NotImplementedError("`gen.close` is not supported: use skate.cancel(generator).")

    async def asend(self, value: Any) -> Any:
        """Not supported: items cannot be sent to a generator in another process."""
        raise NotImplementedError("`gen.asend` is not supported: the generator runs in another process.")

    async def athrow(self, *error: Any) -> Any:
        """Not supported: cancel the generator with `skate.cancel` instead."""
        raise NotImplementedError("`gen.athrow` is not supported: use skate.cancel(generator).")

    async def aclose(self) -> None:
        """Not supported: cancel the generator with `skate.cancel` instead."""
        raise NotImplementedError("`gen.aclose` is not supported: use skate.cancel(generator).")

    def __del__(self) -> None:
        stream = getattr(self, "_stream", None)
        if stream is not None:
            stream.close()

    def __reduce__(self) -> Any:
        raise TypeError(
            "An ObjectRefGenerator cannot be pickled, so it can neither be passed to a task nor returned from one. "
            "Pass its references, or a list of them."
        )


class DynamicObjectRefGenerator(Generic[T]):
    """The references of a task with `num_returns="dynamic"`, all of which are ready."""

    def __init__(self, references: list[ObjectRef[T]]) -> None:
        self._refs = references

    def __iter__(self) -> Iterator[ObjectRef[T]]:
        while self._refs:
            yield self._refs.pop(0)

    def __len__(self) -> int:
        return len(self._refs)
