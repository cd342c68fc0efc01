"""Messages about objects: registration, holds, readiness, shared memory."""

from skate._engine.local.wire.messages.values import Message


class Ready(Message, tag=30):
    """An object that this process subscribed to is ready."""

    id: bytes
    state: int
    data: bytes = b""
    contains: list[bytes] = []
    total: int = 0


class Register(Message, tag=31):
    """Register an object that only its owner knew; `state` may still be PENDING."""

    id: bytes
    state: int
    data: bytes = b""
    segment: str = ""
    size: int = 0
    contains: list[bytes] = []
    pinned: bool = False
    follows: bool = False  # this process registers the value of a pending object when it gets it


class Hold(Message, tag=32):
    """This process has its first reference to these objects or actors."""

    ids: list[bytes]


class Release(Message, tag=33):
    """This process has dropped its last reference to these objects or actors."""

    ids: list[bytes]


class Subscribe(Message, tag=34):
    """Notify this process when these objects are ready."""

    ids: list[bytes]


class Pin(Message, tag=35):
    """Load these shared objects into memory and keep them there for this process."""

    ids: list[bytes]


class Unpin(Message, tag=36):
    """This process no longer maps these shared objects."""

    ids: list[bytes]


class Located(Message, tag=37):
    """The segment of a pinned object, or the error that prevents reading it."""

    id: bytes
    segment: str = ""
    size: int = 0
    error: bytes = b""


class Allocate(Message, tag=38):
    """Request shared memory for an object."""

    request: int
    size: int
    instead_of: str = ""  # a segment that does not fit into shared memory


class Allocated(Message, tag=39):
    """A segment to write to; with `reused`, the writer has mapped it already."""

    request: int
    segment: str
    size: int
    reused: bool = False
    reason: str = ""  # why the segment lies on disk


class Abandon(Message, tag=40):
    """An allocated segment will not be used."""

    segment: str


class DropSegments(Message, tag=41):
    """These segments are deleted: the process that created them may unmap them."""

    segments: list[str]


class Tidy(Message, tag=44):
    """Report unmapped objects to the node now, because memory is short."""

    collect: bool = False  # run the garbage collector too, for cycles that hold objects


class Free(Message, tag=42):
    """Free these objects now, even if references to them exist."""

    ids: list[bytes]


class Inquire(Message, tag=43):
    """Ask the owner of an id to register the object, which the node does not know."""

    id: bytes
