"""The reference to a value that exists now or will exist later."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from skate._base import ids

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

# States of a reference, as its engine knows them in this process. Anything but PENDING is final.
PENDING = 0
INLINE = 1  # data holds the serialized value
ERROR = 2  # data holds the serialized exception
SHARED = 3  # the value lies in shared memory; the engine knows where


class ObjectRef(Generic[T]):
    """Refers to the result of a task, an actor call or a `put`.

    `skate.get(ref)` or `await ref` gives the value. The object is freed when the last reference to
    it, in any process, is gone.
    """

    SIZE: ClassVar[int] = ids.OBJECT_SIZE
    # The engine keeps what it knows of the object on the reference itself: one lookup less on the
    # hot path, and Python's own counting tells when the process has let go of the object.
    __slots__ = ("__weakref__", "_data", "_engine", "_id", "_known", "_state", "_waiters")

    _id: bytes
    _state: int
    _data: Any
    _engine: Any
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
        """Return the reference that stands for "none"."""
        return cls(b"\xff" * ids.OBJECT_SIZE)

    @classmethod
    def from_random(cls) -> ObjectRef[Any]:
        """Return a reference with a random id, to no object."""
        return cls(os.urandom(ids.OBJECT_SIZE))

    @classmethod
    def from_binary(cls, data: bytes) -> ObjectRef[Any]:
        """Return a reference with this id."""
        return cls(data)

    @classmethod
    def from_hex(cls, text: str) -> ObjectRef[Any]:
        """Return a reference with the id that `text` spells."""
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
        """Tell whether this is the nil reference."""
        return self._id == b"\xff" * ids.OBJECT_SIZE

    def task_id(self) -> ids.TaskID:
        """Return the id of the task that makes the object."""
        return ids.TaskID(ids.task_of(self._id))

    def job_id(self) -> ids.JobID:
        """Return the id of the job that the object belongs to."""
        return ids.JobID(ids.task_of(self._id)[-ids.JOB_SIZE :])

    def call_site(self) -> str:
        """Return where the object was created; empty, because Skate does not record it."""
        return ""

    def future(self) -> Future[T]:
        """Return a `concurrent.futures.Future` for the value."""
        engine = self._need_engine()
        native = getattr(engine, "native_future", None)
        if native is not None:
            return native(self)  # type: ignore[no-any-return]
        from concurrent.futures import Future

        future: Future[T] = Future()
        engine.when_ready(self, lambda ref: _fill(future, ref))
        return future  # the engine keeps the reference until the callback has been called

    def as_future(self, _internal: bool = False) -> Any:
        """Return an asyncio future for the value, on the running loop."""
        import asyncio

        return asyncio.ensure_future(self._result())

    def _on_completed(self, callback: Callable[[Any], None]) -> ObjectRef[T]:
        """Call `callback` with the value (or the exception) once it is there."""

        def deliver(done: Future[T]) -> None:
            try:
                value: Any = done.result()
            except BaseException as error:  # the callback is the one to judge it
                value = error
            try:
                callback(value)
            except Exception:  # it runs in a thread that others depend on
                import logging
                import traceback

                # As text: a record of the exception itself would keep all that the callback refers to.
                logging.getLogger("skate").error("A callback of %r failed:\n%s", self, traceback.format_exc())

        self.future().add_done_callback(deliver)
        return self

    def __await__(self) -> Generator[Any, None, T]:
        return self._result().__await__()

    async def _result(self) -> T:
        engine = self._need_engine()
        native = getattr(engine, "native_result", None)
        if native is not None:
            return await native(self)  # type: ignore[no-any-return]
        if self._state == PENDING:
            import asyncio

            loop = asyncio.get_running_loop()
            ready: asyncio.Future[None] = loop.create_future()
            engine.when_ready(self, Awaiter(engine, loop, ready))
            await ready
        value: T = engine.value_of(self)
        return value

    def _need_engine(self) -> Any:
        if self._engine is None:
            raise ValueError(
                f"{self!r} refers to no object of this session: it was built by hand, or unpickled "
                "outside of skate.get. Pass references through tasks, actors or skate.put."
            )
        return self._engine

    def __getattr__(self, name: str) -> Any:
        # Only for what a slot does not hold yet: an engine may have to ask elsewhere for the id.
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

    def __iter__(self) -> Any:
        raise TypeError("'ObjectRef' object is not iterable: use skate.get(ref) to get its value first")

    def __reduce__(self) -> tuple[Any, ...]:
        engine = self._engine
        native = None if engine is None else engine.reference_pickled(self)
        return native or (revive, (self._id,))

    def __del__(self) -> None:
        # Only references that the engine's directory knows have to be reported.
        if self._known:
            self._engine.reference_dropped(self)


class Awaiter:
    """Wakes a coroutine that awaits a reference."""

    __slots__ = ("_engine", "_loop", "future")

    def __init__(self, engine: Any, loop: Any, future: Any) -> None:
        self._engine = engine
        self._loop = loop
        self.future = future  # that the coroutine waits for

    def __call__(self, _: ObjectRef[Any]) -> None:
        self._engine.call_in_loop(self._loop, self._wake)

    def _wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


def _fill(future: Future[Any], ref: ObjectRef[Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(ref._need_engine().value_of(ref))
    except BaseException as error:  # carried to whoever asks the future
        # Without the traceback, which would keep alive the stack of the thread that happened to read.
        future.set_exception(error.with_traceback(None))


# Set by the running engine: turns an id met while unpickling into a live reference.
reviver: Callable[[bytes], ObjectRef[Any]] | None = None


# Set by an engine that can do it for many at once in less time.
reviver_of_many: Callable[[list[bytes]], list[ObjectRef[Any]]] | None = None


def revive(id: bytes) -> ObjectRef[Any]:
    """Return the reference with this id, tied to the running engine if there is one."""
    return ObjectRef(id) if reviver is None else reviver(id)


def revive_many(wanted: list[bytes]) -> list[ObjectRef[Any]]:
    """Return the references with these ids."""
    return list(map(revive, wanted)) if reviver_of_many is None else reviver_of_many(wanted)


def next_reference() -> ObjectRef[Any]:
    """Stand in a stream for the next of the references that its payload lists."""
    raise ValueError("this pickle has its references elsewhere: only skate.get can read it")
