"""Objects: known, held, ready, in shared memory."""

from __future__ import annotations

from skate._engine.local.wire.messages.values import Message


class Ready(Message, tag=30):
    """An object that this process waits for has its value."""

    id: bytes
    state: int
    data: bytes = b""
    contains: list[bytes] = []
    total: int = 0


class Register(Message, tag=31):
    """Make an object known that only its owner knew so far; `state` may still be PENDING."""

    id: bytes
    state: int
    data: bytes = b""
    segment: str = ""
    size: int = 0
    contains: list[bytes] = []
    pinned: bool = False


class Hold(Message, tag=32):
    """This process has its first reference to these objects or actors."""

    ids: list[bytes]


class Release(Message, tag=33):
    """This process has dropped its last reference to these objects or actors."""

    ids: list[bytes]


class Subscribe(Message, tag=34):
    """Tell this process when these objects are ready."""

    ids: list[bytes]


class Pin(Message, tag=35):
    """Bring these shared objects to memory and keep them there for this process."""

    ids: list[bytes]


class Unpin(Message, tag=36):
    """This process does not map these shared objects any more."""

    ids: list[bytes]


class Located(Message, tag=37):
    """A pinned object lies in this segment (or why it cannot be had)."""

    id: bytes
    segment: str = ""
    size: int = 0
    error: bytes = b""


class Allocate(Message, tag=38):
    """Ask for shared memory to write an object to."""

    request: int
    size: int
    instead_of: str = ""  # a segment for which shared memory turned out to have no room


class Allocated(Message, tag=39):
    """A segment to write to; `reused` says the writer has it mapped already."""

    request: int
    segment: str
    size: int
    reused: bool = False
    reason: str = ""  # why the segment lies on disk


class Abandon(Message, tag=40):
    """An allocated segment will not be used."""

    segment: str


class DropSegments(Message, tag=41):
    """These segments are gone: the process that made them may unmap them."""

    segments: list[str]


class Tidy(Message, tag=44):
    """Memory is short: tell the node at once which objects are not mapped any more."""

    collect: bool = False  # look for cycles of Python objects that keep some alive, too


class Free(Message, tag=42):
    """Free these objects now, whoever still refers to them."""

    ids: list[bytes]


class Inquire(Message, tag=43):
    """The node asks the owner of an id about an object it has not heard of."""

    id: bytes
