"""The stream of references that a generator task makes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from skate._base.object_ref import ObjectRef

T = TypeVar("T")


class Stream(Protocol):
    """What an engine provides for a generator: references, one after the other."""

    task: bytes

    def next(self, timeout: float | None) -> ObjectRef[Any] | None:
        """Return the next reference, or None when `timeout` has passed; StopIteration at the end."""

    async def next_async(self) -> ObjectRef[Any]:
        """Return the next reference; StopAsyncIteration at the end."""

    def ready(self) -> bool:
        """Tell whether `next` would return (or raise) at once."""

    def finished(self) -> bool:
        """Tell whether all references have been taken."""

    def completed(self) -> ObjectRef[Any]:
        """Return a reference that is ready when the generator has ended."""

    def close(self) -> None:
        """Let go of the items that nobody took."""


class ObjectRefGenerator(Generic[T]):
    """Iterates over the references that a streaming generator makes, as they become available.

    `next(generator)` blocks until the next item is there and returns a reference to it; iteration also
    works with `async for`.
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
        """Return the next reference, or the nil reference when `timeout_s` has passed."""
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
        """Tell whether the next item is there, so that `next` would not block."""
        return self._stream.ready() and not self._stream.finished()

    def is_finished(self) -> bool:
        """Tell whether the generator has ended and every item has been taken."""
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
            "You cannot return or pass a generator to other task: serializing an ObjectRefGenerator is not "
            "allowed. Pass its references, or a list of them."
        )


class DynamicObjectRefGenerator(Generic[T]):
    """The references that a task with `num_returns="dynamic"` made, all there already."""

    def __init__(self, references: list[ObjectRef[T]]) -> None:
        self._refs = references

    def __iter__(self) -> Iterator[ObjectRef[T]]:
        while self._refs:
            yield self._refs.pop(0)

    def __len__(self) -> int:
        return len(self._refs)
