"""The parts of messages: their base classes, values, templates and options."""

import msgspec

from skate._engine.common.values import DYNAMIC, STREAMING

__all__ = [
    "DYNAMIC",
    "STREAMING",
    "ActorOptions",
    "Argument",
    "Message",
    "Mutable",
    "Result",
    "TaskTemplate",
]


class Message(msgspec.Struct, array_like=True, gc=False, omit_defaults=True):
    """Base of all messages; subclasses carry a tag."""


class Mutable(msgspec.Struct, array_like=True, omit_defaults=True):
    """Base of records inside messages that hold containers of containers."""


class Result(Message):
    """An object made by a task: its state, and the location of its bytes.

    `state` is INLINE, ERROR or SHARED of `skate._base.object_ref`. `segment` names the shared memory of a SHARED
    object. `contains` are the ids of the references inside the value.
    """

    state: int
    data: bytes = b""
    segment: str = ""
    size: int = 0
    contains: list[bytes] = []


class Argument(Message):
    """The value of a dependency at the time when the task was sent to its worker."""

    slot: int | str
    state: int
    data: bytes = b""
    id: bytes = b""


class TaskTemplate(Mutable):
    """The common part of all submissions of a function with the same options."""

    function: bytes  # key of the exported function, or class for an actor
    name: str
    resources: dict[str, float] = {}
    num_returns: int = 1  # STREAMING or DYNAMIC for generators
    max_retries: int = 0
    retry_exceptions: bytes = b""  # serialized: True or a tuple of classes; empty for never
    environment: str = ""  # serialized runtime environment; "" for that of the job
    group: bytes = b""
    bundle: int = -1
    capture_children: bool = False
    max_calls: int = 0
    backpressure: int = 0
    per_yield: int = 1
    labels: dict[str, str] = {}
    label_choices: list[dict[str, str]] = []  # fallback label selectors, in order
    node: str = ""  # node affinity, hard
    module: str = ""
    qualname: str = ""
    events: bool = True  # whether the state API lists the tasks; the constructor of an actor


class ActorOptions(Mutable):
    """The options of an actor, apart from the template of its creation."""

    name: str = ""
    namespace: str = ""
    detached: bool = False
    max_restarts: int = 0
    max_concurrency: int = 1
    is_async: bool = False
    groups: dict[str, int] = {}
    get_if_exists: bool = False
    out_of_order: bool = False
    max_pending_calls: int = -1
    max_task_retries: int = 0
    events: bool = True  # whether the state API lists calls, unless a method says otherwise
    generator_cap: int = 0  # objects that all generators of the actor together may be ahead
    metadata: bytes = b""  # serialized method signatures, for handles created from a name
