"""Messages about tasks: submission, execution, results, cancellation; blocked workers."""

from skate._engine.local.wire.messages.values import Argument, Message, Result, TaskTemplate


class Define(Message, tag=10):
    """Assign a number to a template for this connection; a worker also gets the function's code."""

    number: int
    template: TaskTemplate
    code: bytes = b""


class Export(Message, tag=11):
    """Send a function or class to the node."""

    key: bytes
    code: bytes


class Submit(Message, tag=12):
    """Submit a task."""

    task: bytes
    template: int
    args: bytes
    dependencies: list[tuple[int | str, bytes]] = []
    contains: list[bytes] = []
    args_object: bytes = b""  # id of the object that holds large arguments
    parent: bytes = b""
    depth: int = 0


class SubmitMany(Message, tag=28):
    """Submit tasks with no references among their arguments; each has one result, which is private to the submitter."""

    template: int
    tasks: list[bytes]
    args: list[bytes]
    parent: bytes = b""
    depth: int = 0


class RunMany(Message, tag=29):
    """Run tasks one after the other, in their first attempt; none has references among its arguments."""

    template: int
    tasks: list[bytes]
    args: list[bytes]
    depth: int = 0


class DoneMany(Message, tag=45):
    """Tasks that returned a small value each."""

    tasks: list[bytes]
    values: list[bytes]
    started: list[float]
    seconds: list[float]


class Values(Message, tag=46):
    """Small values of tasks, for the process that they are private to."""

    tasks: list[bytes]
    values: list[bytes]


class PrivateResult(Message, tag=47):
    """The result of a task, for the process that it is private to: an error, or a value that others may need."""

    task: bytes
    result: Result
    registered: bool = False  # whether the node has it too


class Run(Message, tag=13):
    """Run a task, whose dependencies are ready."""

    task: bytes
    template: int
    args: bytes
    arguments: list[Argument] = []
    args_object: bytes = b""
    accelerators: dict[str, list[str]] = {}
    attempt: int = 0
    depth: int = 0


class Done(Message, tag=14):
    """The outcome of a task, or of an actor's constructor."""

    task: bytes
    results: list[Result]
    started: float = 0.0
    seconds: float = 0.0
    retry: bool = False  # the exception is one of those to retry on
    failed: str = ""  # description of the exception (`describe_failure`)
    last: bool = False  # the worker ends now (max_calls)
    count: int = 0  # how many items a generator made
    repr: str = ""  # of an actor whose class defines it


class Item(Message, tag=15):
    """The next object of a generator task."""

    task: bytes
    index: int
    result: Result


class Consumed(Message, tag=16):
    """The reader of a generator has taken this many items."""

    task: bytes
    count: int
    closed: bool = False


class Recall(Message, tag=17):
    """Request the tasks that a worker has not started."""


class HandBack(Message, tag=18):
    """Tasks that a worker has not started, in reply to Recall."""

    tasks: list[bytes]


class Cancel(Message, tag=19):
    """Cancel the task that makes an object."""

    task: bytes
    force: bool = False
    recursive: bool = True


class CancelRunning(Message, tag=20):
    """Interrupt a task in its worker."""

    task: bytes
    force: bool = False
    recursive: bool = True


class Blocked(Message, tag=21):
    """A worker waits for objects: its CPU is free meanwhile."""

    task: bytes
    objects: list[bytes]
    timed: bool = False


class Unblocked(Message, tag=22):
    """A worker continues."""

    task: bytes


class Stalled(Message, tag=24):
    """A driver or an asynchronous actor has waited for a while without a time-out."""


class WaitProbe(Message, tag=25):
    """Request a WaitReport from a process."""

    round: int


class WaitReport(Message, tag=26):
    """The waits of a process, and its calls without a reply.

    Two equal reports of a process mean that it has done nothing in between: `turn` counts its waits and values.
    """

    round: int
    active: bool = False  # it runs code or waits with a time-out; then only its waits are listed
    turn: int = 0
    waits: list[tuple[int, bytes, int, list[bytes]]] = []  # number, task, objects needed, pending objects
    awaited: list[bytes] = []  # objects that coroutines and callbacks wait for
    calls: list[bytes] = []  # of an actor: calls without a reply
    takes_calls: bool = False  # of an actor: whether it would run another call immediately
    sent: list[bytes] = []  # calls to actors without a reply
    cancelled: list[bytes] = []  # the cancelled ones of these
    # Actor, calls that leave in order, the pending objects that the first of them needs.
    unsent: list[tuple[bytes, list[bytes], list[bytes]]] = []


class Deadlock(Message, tag=23):
    """The wait with this number, or every await of this object, would never end."""

    text: str
    wait: int = 0
    object: bytes = b""


class Imported(Message, tag=27):
    """Loading the function of a template has imported modules of installed distributions, in this order."""

    template: int
    modules: list[str]
    seconds: float  # processor time
