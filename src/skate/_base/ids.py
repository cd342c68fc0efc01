"""Identifiers: fixed-size byte strings with a type.

Sizes and nesting follow Ray's, so that programs which slice or print them keep working: an object id consists of the
id of the task that made it and an index, a task id ends with the id of its actor, and an actor id ends with the id of
its job.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar, Self

JOB_SIZE = 4
ACTOR_SIZE = 16
TASK_SIZE = 24
OBJECT_SIZE = 28
UNIQUE_SIZE = 28
GROUP_SIZE = 18

# A task id starts with the number of the process that made it (PROCESS_SIZE bytes) and that process'
# counter. The node uses the prefix to find the owner of an unknown object.
PROCESS_SIZE = 3
COUNTER_SIZE = 5
NIL_ACTOR_UNIQUE = b"\xff" * (ACTOR_SIZE - JOB_SIZE)


class BaseID:
    """A fixed-size identifier; equal when type and bytes are equal."""

    SIZE: ClassVar[int] = UNIQUE_SIZE
    __slots__ = ("__weakref__", "_id")

    def __init__(self, id: bytes) -> None:
        if not isinstance(id, bytes):
            raise TypeError(f"Unsupported type: {type(id).__name__}; {type(self).__name__} takes bytes")
        if len(id) != self.SIZE:
            raise ValueError(f"ID string needs to have length {self.SIZE}, got {len(id)}")
        self._id = id

    @classmethod
    def nil(cls) -> Self:
        """Return the id that stands for "none"."""
        return cls(b"\xff" * cls.SIZE)

    @classmethod
    def from_random(cls) -> Self:
        """Return a new random id."""
        return cls(os.urandom(cls.SIZE))

    @classmethod
    def from_hex(cls, text: str) -> Self:
        """Return the id with these hexadecimal digits."""
        return cls(bytes.fromhex(text))

    @classmethod
    def size(cls) -> int:
        """Return the number of bytes of this kind of id."""
        return cls.SIZE

    def binary(self) -> bytes:
        """Return the raw bytes."""
        return self._id

    def hex(self) -> str:
        """Return the bytes as hexadecimal digits."""
        return self._id.hex()

    def is_nil(self) -> bool:
        """Return whether this is the nil id."""
        return self._id == b"\xff" * self.SIZE

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._id == other._id

    def __hash__(self) -> int:
        return hash(self._id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._id.hex()})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._id,)


class UniqueID(BaseID):
    """An identifier with no inner structure."""

    __slots__ = ()


class NodeID(UniqueID):
    """Identifies a machine of the cluster."""

    __slots__ = ()


class WorkerID(UniqueID):
    """Identifies a worker or driver process."""

    __slots__ = ()


def worker_id(number: int) -> str:
    """Return a worker's id, as hexadecimal digits, from its number in the session."""
    return WorkerID(number.to_bytes(UNIQUE_SIZE, "big")).hex()


class FunctionID(UniqueID):
    """Identifies an exported function."""

    __slots__ = ()


class ActorClassID(UniqueID):
    """Identifies an exported actor class."""

    __slots__ = ()


class JobID(BaseID):
    """Identifies a driver program attached to a node."""

    SIZE = JOB_SIZE
    __slots__ = ()

    @classmethod
    def from_int(cls, value: int) -> JobID:
        """Return the id of the job with this number."""
        return cls(value.to_bytes(JOB_SIZE, "little"))

    def int(self) -> int:
        """Return the job's number."""
        return int.from_bytes(self._id, "little")


class ActorID(BaseID):
    """Identifies an actor."""

    SIZE = ACTOR_SIZE
    __slots__ = ()

    @property
    def job_id(self) -> JobID:
        """The job that created the actor."""
        return JobID(self._id[-JOB_SIZE:])


class TaskID(BaseID):
    """Identifies one submitted task or actor call."""

    SIZE = TASK_SIZE
    __slots__ = ()

    def actor_id(self) -> ActorID:
        """Return the actor that runs the task; nil (up to the job) for a plain task."""
        return ActorID(self._id[-ACTOR_SIZE:])

    def job_id(self) -> JobID:
        """Return the job that submitted the task."""
        return JobID(self._id[-JOB_SIZE:])


class PlacementGroupID(BaseID):
    """Identifies a placement group."""

    SIZE = GROUP_SIZE
    __slots__ = ()


CREATION = b"\xff" * 8
"""Prefix of the ids that stand for an actor's creation task and its handles."""

FIRST_INDEX = b"\x01\0\0\0"
"""End of the id of the first object that a task makes; see `object_id`."""


def handle_id(actor: bytes) -> bytes:
    """Return the id of the object that stands for the handles of an actor."""
    return CREATION + actor + FIRST_INDEX


def object_id(task: bytes, index: int) -> bytes:
    """Return the id of the `index`-th (from 1) object that `task` makes."""
    return task + index.to_bytes(4, "little")


def task_of(object_id: bytes) -> bytes:
    """Return the id of the task that makes this object."""
    return object_id[:TASK_SIZE]


def index_of(object_id: bytes) -> int:
    """Return the index (from 1) of this object among those of its task."""
    return int.from_bytes(object_id[TASK_SIZE:], "little")


def actor_of(object_or_task: bytes) -> bytes | None:
    """Return the actor whose call makes this object, or None for a plain task's."""
    actor = object_or_task[TASK_SIZE - ACTOR_SIZE : TASK_SIZE]
    return None if actor.startswith(NIL_ACTOR_UNIQUE) else actor


def process_of(object_or_task: bytes) -> int:
    """Return the number of the process that made this id."""
    return int.from_bytes(object_or_task[:PROCESS_SIZE], "big")


class IdFactory:
    """Creates ids that are unique within the session."""

    def __init__(self, process: int, job: bytes, session: bytes = b"\0\0\0\0") -> None:
        self.process = process
        # Handles may outlive their session, so the ids of actors must differ between sessions.
        self._session = session[:4]
        self.job = job
        self._prefix = process.to_bytes(PROCESS_SIZE, "big")
        self._plain_suffix = NIL_ACTOR_UNIQUE + job
        # itertools.count is atomic under the GIL, so threads need no lock here.
        import itertools

        self._next = itertools.count(1).__next__

    def task(self) -> bytes:
        """Return a new id for a plain task (or a put)."""
        return self._prefix + self._next().to_bytes(COUNTER_SIZE, "big") + self._plain_suffix

    def call(self, actor: bytes) -> bytes:
        """Return a new id for a call of `actor`."""
        return self._prefix + self._next().to_bytes(COUNTER_SIZE, "big") + actor

    def actor(self) -> bytes:
        """Return a new actor id."""
        return self._prefix + self._next().to_bytes(COUNTER_SIZE, "big") + self._session + self.job

    def is_of_session(self, actor: bytes) -> bool:
        """Return whether an actor was created in this session."""
        return actor[PROCESS_SIZE + COUNTER_SIZE :].startswith(self._session)

    def group(self) -> bytes:
        """Return a new placement group id."""
        return self._prefix + self._next().to_bytes(COUNTER_SIZE, "big") + b"\0" * 6 + self.job
