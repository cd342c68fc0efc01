"""Tasks: submitted, run, done, cancelled; blocked workers."""

from __future__ import annotations

from skate._engine.local.wire.messages.values import Argument, Message, Result, TaskTemplate


class Define(Message, tag=10):
    """Give a template a number for this connection; a worker gets the function's code along."""

    number: int
    template: TaskTemplate
    code: bytes = b""


class Export(Message, tag=11):
    """Make a function or class known to the node."""

    key: bytes
    code: bytes


class Submit(Message, tag=12):
    """Run a task."""

    task: bytes
    template: int
    args: bytes
    dependencies: list[tuple[int | str, bytes]] = []
    contains: list[bytes] = []
    args_object: bytes = b""  # id of the object that holds the arguments when they are large
    parent: bytes = b""
    depth: int = 0


class Run(Message, tag=13):
    """The node tells a worker to run a task, with all its dependencies there."""

    task: bytes
    template: int
    args: bytes
    arguments: list[Argument] = []
    args_object: bytes = b""
    accelerators: dict[str, list[str]] = {}
    attempt: int = 0
    depth: int = 0


class Done(Message, tag=14):
    """A worker has run a task (or an actor's constructor)."""

    task: bytes
    results: list[Result]
    started: float = 0.0
    seconds: float = 0.0
    retry: bool = False  # the exception is one of those to retry on
    failed: str = ""  # name of the exception's class
    last: bool = False  # the worker ends now (max_calls)
    count: int = 0  # how many items a generator made


class Item(Message, tag=15):
    """A generator task has made its next object."""

    task: bytes
    index: int
    result: Result


class Consumed(Message, tag=16):
    """The reader of a generator has taken this many items."""

    task: bytes
    count: int
    closed: bool = False


class Recall(Message, tag=17):
    """The node asks a worker to give back tasks that it has not started."""


class HandBack(Message, tag=18):
    """A worker gives back tasks that it has not started."""

    tasks: list[bytes]


class Cancel(Message, tag=19):
    """Cancel the task that makes an object."""

    task: bytes
    force: bool = False
    recursive: bool = True


class CancelRunning(Message, tag=20):
    """The node tells a worker to interrupt a task."""

    task: bytes
    force: bool = False
    recursive: bool = True


class Blocked(Message, tag=21):
    """A worker waits for objects: its CPU is free meanwhile."""

    task: bytes
    objects: list[bytes]
    timed: bool = False


class Unblocked(Message, tag=22):
    """A worker goes on."""

    task: bytes


class Stalled(Message, tag=24):
    """A driver, or an asynchronous actor, has waited for a while without a limit of time."""


class WaitProbe(Message, tag=25):
    """The node asks a process what it waits for."""

    round: int


class WaitReport(Message, tag=26):
    """A process says what it waits for, and which calls it owes or is owed.

    Two equal reports of a process mean that it has done nothing in between: `turn` counts what it has begun.
    """

    round: int
    active: bool = False  # it runs code, or waits with a limit of time: then only its waits are listed
    turn: int = 0
    waits: list[tuple[int, bytes, int, list[bytes]]] = []  # number, task, how many it needs, pending objects
    awaited: list[bytes] = []  # objects that coroutines and callbacks wait for
    calls: list[bytes] = []  # of an actor: calls that it has yet to answer
    takes_calls: bool = False  # of an actor: whether it would run another call at once
    sent: list[bytes] = []  # calls to actors that have not been answered
    cancelled: list[bytes] = []  # those of them that were cancelled
    unsent: list[
        tuple[bytes, list[bytes], list[bytes]]
    ] = []  # actor, calls, the pending objects that they need


class Deadlock(Message, tag=23):
    """The wait with this number, or all that await this object, would never end."""

    text: str
    wait: int = 0
    object: bytes = b""
