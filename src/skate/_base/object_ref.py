"""The reference to a value that exists now or will exist later."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from skate._base import ids

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from asyncio import Future as AsyncioFuture
    from concurrent.futures import Future

T = TypeVar("T")

# States of a reference in this process. All but PENDING are final.
PENDING = 0
INLINE = 1  # data holds the serialized value
ERROR = 2  # data holds the serialized exception
SHARED = 3  # the value is in shared memory; the engine knows where


class ReferenceOwner(ABC):
    """The part of an engine that references call back into."""

    @abstractmethod
    def future_of(self, reference: ObjectRef[T]) -> Future[T]:
        """Return a `concurrent.futures.Future` for the value."""

    @abstractmethod
    def await_value(self, reference: ObjectRef[T]) -> Coroutine[Any, Any, T]:
        """Return a coroutine that waits for the value in an event loop."""

    @abstractmethod
    def reference_pickled(self, reference: ObjectRef[Any]) -> tuple[Any, ...] | None:
        """Record that a reference is being pickled; return its reduction, or None for its id."""

    def id_of(self, reference: ObjectRef[Any]) -> bytes:
        """Return the id of an object whose reference was made without it."""
        raise AttributeError(f"{type(reference).__name__!r} object has no attribute '_id'")

    @abstractmethod
    def promote(self, reference: ObjectRef[Any]) -> None:
        """Make an object known to other processes, unless all objects are."""

    @abstractmethod
    def reference_dropped(self, reference: ObjectRef[Any]) -> None:
        """Record that this process dropped a reference that has `_known` set; the garbage collector calls this."""


class CallbackOwner(ReferenceOwner):
    """An owner that calls back when a value arrives in this process."""

    @abstractmethod
    def value_of(self, reference: ObjectRef[Any]) -> Any:
        """Return the value of a reference that is ready, or raise its exception."""

    @abstractmethod
    def when_ready(self, reference: ObjectRef[Any], callback: Callable[[ObjectRef[Any]], None]) -> None:
        """Call `callback` once the reference is ready, at once if it is; keep the reference until then."""

    @abstractmethod
    def call_in_loop(self, loop: AbstractEventLoop, callback: Callable[[], None]) -> None:
        """Run `callback` in an event loop; directly if the calling thread runs the loop."""

    def future_of(self, reference: ObjectRef[T]) -> Future[T]:
        """Return a `concurrent.futures.Future` for the value."""
        from concurrent.futures import Future

        future: Future[T] = Future()
        self.when_ready(reference, lambda ready: self._fill(future, ready))
        return future

    def _fill(self, future: Future[Any], reference: ObjectRef[Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(self.value_of(reference))
        except BaseException as error:  # the future raises it
            # Without the traceback, which would keep alive the stack of the thread that received the value.
            future.set_exception(error.with_traceback(None))

    async def await_value(self, reference: ObjectRef[T]) -> T:
        """Wait for the value in an event loop."""
        if reference._state == PENDING:
            import asyncio

            loop = asyncio.get_running_loop()
            ready: asyncio.Future[None] = loop.create_future()
            self.when_ready(reference, Awaiter(self, loop, ready))
            await ready
        value: T = self.value_of(reference)
        return value


class ObjectRef(Generic[T]):
    """Refers to the result of a task, an actor call or a `put`.

    `skate.get(ref)` or `await ref` returns the value. The object is freed when no process holds a reference to it.
    """

    SIZE: ClassVar[int] = ids.OBJECT_SIZE
    # The engine stores the state of the object on the reference itself: this saves a lookup on the
    # hot path, and Python's reference counting detects when the process drops the object.
    __slots__ = ("__weakref__", "_data", "_engine", "_id", "_known", "_state", "_waiters")

    _id: bytes
    _state: int
    _data: Any
    _engine: ReferenceOwner | None
    _known: bool
    _waiters: list[Callable[[ObjectRef[Any]], None]] | None

    def __init__(self, id: bytes) -> None:
        if not isinstance(id, bytes):
            raise TypeError(f"Unsupported type: {type(id).__name__}; ObjectRef takes bytes")
        if len(id) != ids.OBJECT_SIZE:
            raise ValueError(f"ID string needs to have length {ids.OBJECT_SIZE}, got {len(id)}")
        self._id = id
        self._state = PENDING
        self._data = None
        self._engine = None
        self._known = False
        self._waiters = None

    @classmethod
    def nil(cls) -> ObjectRef[Any]:
        """Return the nil reference."""
        return cls(b"\xff" * ids.OBJECT_SIZE)

    @classmethod
    def from_random(cls) -> ObjectRef[Any]:
        """Return a reference with a random id, which refers to no object."""
        return cls(os.urandom(ids.OBJECT_SIZE))

    @classmethod
    def from_binary(cls, data: bytes) -> ObjectRef[Any]:
        """Return a reference with this id."""
        return cls(data)

    @classmethod
    def from_hex(cls, text: str) -> ObjectRef[Any]:
        """Return a reference with this id, given as hexadecimal digits."""
        return cls(bytes.fromhex(text))

    @classmethod
    def size(cls) -> int:
        """Return the number of bytes of an object id."""
        return ids.OBJECT_SIZE

    def binary(self) -> bytes:
        """Return the id as bytes."""
        return self._id

    def hex(self) -> str:
        """Return the id as hexadecimal digits."""
        return self._id.hex()

    def is_nil(self) -> bool:
        """Return whether this is the nil reference."""
        return self._id == b"\xff" * ids.OBJECT_SIZE

    def task_id(self) -> ids.TaskID:
        """Return the id of the task that makes the object."""
        return ids.TaskID(ids.task_of(self._id))

    def job_id(self) -> ids.JobID:
        """Return the id of the job that the object belongs to."""
        return ids.JobID(ids.task_of(self._id)[-ids.JOB_SIZE :])

    def call_site(self) -> str:
        """Return "": Skate does not record where objects are created."""
        return ""

    def future(self) -> Future[T]:
        """Return a `concurrent.futures.Future` for the value."""
        return self._need_engine().future_of(self)

    def as_future(self, _internal: bool = False) -> Any:
        """Return an asyncio future for the value, on the running loop."""
        import asyncio

        return asyncio.ensure_future(self._result())

    def _on_completed(self, callback: Callable[[Any], None]) -> ObjectRef[T]:
        """Call `callback` with the value (or the exception) once it is ready."""

        def deliver(done: Future[T]) -> None:
            try:
                value: Any = done.result()
            except BaseException as error:  # the callback handles it
                value = error
            try:
                callback(value)
            except Exception:  # it must not end the engine's thread
                import logging
                import traceback

                # As text: a record of the exception itself would keep the callback's objects alive.
                logging.getLogger("skate").error("A callback of %r failed:\n%s", self, traceback.format_exc())

        self.future().add_done_callback(deliver)
        return self

    def __await__(self) -> Generator[Any, None, T]:
        return self._need_engine().await_value(self).__await__()

    async def _result(self) -> T:
        return await self

    def _need_engine(self) -> ReferenceOwner:
        engine = self._engine
        if engine is None:
            raise ValueError(
                f"{self!r} refers to no object of this session: it was built by hand, or unpickled "
                "outside of skate.get. Pass references through tasks, actors or skate.put."
            )
        return engine

    def __getattr__(self, name: str) -> Any:
        # Called for an empty slot: an engine may have to fetch the id.
        if name == "_id" and self._engine is not None:
            self._id = self._engine.id_of(self)
            return self._id
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectRef) and self._id == other._id

    def __hash__(self) -> int:
        return hash(self._id)

    def __repr__(self) -> str:
        return f"ObjectRef({self._id.hex()})"

    def _repr_html_(self) -> str:
        from skate._base.html_tables import facts_html  # only notebooks need it

        state = {PENDING: None, ERROR: "failed"}.get(
            self._state, "ready"
        )  # a pending one may be ready elsewhere
        return facts_html("ObjectRef", {"id": self.hex(), "task": self.task_id().hex(), "state": state})

    def __iter__(self) -> Any:
        raise TypeError("'ObjectRef' object is not iterable: use skate.get(ref) to get its value first")

    def __reduce__(self) -> tuple[Any, ...]:
        engine = self._engine
        native = None if engine is None else engine.reference_pickled(self)
        return native or (revive, (self._id,))

    def __del__(self) -> None:
        # Only references in the engine's directory have to be reported.
        if self._known:
            engine = self._engine
            if engine is not None:
                engine.reference_dropped(self)


class Awaiter:
    """Wakes a coroutine that awaits a reference."""

    __slots__ = ("_loop", "_owner", "future")

    def __init__(self, owner: CallbackOwner, loop: AbstractEventLoop, future: AsyncioFuture[None]) -> None:
        self._owner = owner
        self._loop = loop
        self.future = future  # that the coroutine waits for

    def __call__(self, _: ObjectRef[Any]) -> None:
        self._owner.call_in_loop(self._loop, self._wake)

    def _wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


# Set by the running engine: returns the live reference for an id found while unpickling.
reviver: Callable[[bytes], ObjectRef[Any]] | None = None


# Set by an engine that is faster for many ids at once.
reviver_of_many: Callable[[list[bytes]], list[ObjectRef[Any]]] | None = None


def revive(id: bytes) -> ObjectRef[Any]:
    """Return the reference with this id, owned by the running engine if one is running."""
    return ObjectRef(id) if reviver is None else reviver(id)


def revive_many(wanted: list[bytes]) -> list[ObjectRef[Any]]:
    """Return the references with these ids."""
    return list(map(revive, wanted)) if reviver_of_many is None else reviver_of_many(wanted)


def next_reference() -> ObjectRef[Any]:
    """Mark, in a pickle stream, the place of the next reference from the payload's list."""
    raise ValueError("this pickle lists its references separately: only skate.get can read it")
