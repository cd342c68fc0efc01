"""What the processes of Serve tell each other: one small struct for each kind of message.

They travel as MessagePack arrays whose first element says the kind. Values of users lie in them as bytes that have been
pickled; nothing here unpickles anything.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = [
    "Call",
    "Cancel",
    "Chunk",
    "Context",
    "End",
    "Fail",
    "Frame",
    "GoAway",
    "GoAwayAck",
    "Grant",
    "Hello",
    "Http",
    "Item",
    "Load",
    "Nonce",
    "Reject",
    "Reply",
    "ResponsePart",
    "Rpc",
    "RpcEnd",
    "Scope",
    "Subscribe",
    "Update",
    "Welcome",
    "acknowledgement_key",
    "decode",
    "encode",
]

Headers = list[tuple[bytes, bytes]]
Metadata = list[tuple[str, Any]]  # of gRPC: values are text, or bytes under names that end in "-bin"


class _Struct(msgspec.Struct, array_like=True, gc=False):
    """A part of a frame: an array without names."""


class Context(_Struct):
    """What follows a request wherever it goes."""

    request_id: str
    app: str = ""
    route: str = ""
    model: str = ""  # the id of the model that a multiplexed request wants
    session: str = ""
    retry: bool = False  # whether it may be given to another replica when its replica dies
    trace: dict[str, str] | None = None  # carried for OpenTelemetry
    method: str = ""  # of HTTP


class Scope(_Struct):
    """The head of an HTTP request or of a websocket's handshake."""

    type: str
    method: str
    path: str
    raw_path: bytes
    query: bytes
    headers: Headers
    root_path: str = ""
    scheme: str = "http"
    http_version: str = "1.1"
    client: tuple[str, int] | None = None
    server: tuple[str, int | None] | None = None
    subprotocols: list[str] = []


# Both sides: who are you?
class Nonce(_Struct, tag=1):
    """The listener's first word: prove that you know the secret, for this once."""

    nonce: bytes


class Hello(_Struct, tag=2):
    """The caller's proof, and its name."""

    proof: bytes
    name: str


class Welcome(_Struct, tag=3):
    """The listener is satisfied; what it tells of itself."""

    about: dict[str, Any]


# Caller to replica.
class Call(_Struct, tag=10):
    """Call a method. Without `args`, the arguments come by an actor call."""

    id: int
    method: str
    context: Context
    args: bytes | None
    stream: bool = False
    force: bool = False  # also if the replica is full


class Http(_Struct, tag=11):
    """Answer an HTTP request, or hold a websocket's conversation."""

    id: int
    context: Context
    scope: Scope
    body: bytes
    more: bool  # further parts of the body follow as chunks


class Chunk(_Struct, tag=12):
    """A part of a request's body, or an event of a websocket's client."""

    id: int
    data: bytes
    more: bool = True
    event: dict[str, Any] | None = None


class Cancel(_Struct, tag=13):
    """Nobody waits for this answer any more."""

    id: int


class Grant(_Struct, tag=14):
    """There is drain for so many further parts. Goes both ways."""

    id: int
    count: int


class GoAwayAck(_Struct, tag=15):
    """Nothing further will be sent over this link."""


class Rpc(_Struct, tag=16):
    """Answer a call over gRPC. Messages stay as they came from the client."""

    id: int
    context: Context
    method: str
    codec: bytes  # what reads and writes its messages, pickled by the proxy
    metadata: Metadata
    peer: str
    auth: dict[str, Any]
    body: bytes
    more: bool  # the client sends a stream, whose messages follow as chunks
    stream: bool  # the answer is a stream


# Replica to caller. `load` is how many requests the replica has under way, of all callers.
class Reply(_Struct, tag=20):
    """The value. Without `value`, it is fetched by an actor call."""

    id: int
    load: int
    value: bytes | None


class Fail(_Struct, tag=21):
    """The call raised."""

    id: int
    load: int
    error: bytes


class Item(_Struct, tag=22):
    """One value of a stream. Without `value`, it is fetched by an actor call under the number given."""

    id: int
    value: bytes | None
    number: int = 0


class End(_Struct, tag=23):
    """A stream is over."""

    id: int
    load: int


class ResponsePart(_Struct, tag=24):
    """A part of an HTTP response: its head with the first part, or a further part."""

    id: int
    load: int
    status: int  # 0 in further parts
    headers: Headers
    body: bytes
    more: bool
    event: dict[str, Any] | None = None  # of a websocket
    trailers: bool = False
    replica_time_s: float = (
        0.0  # seconds that the replica had the request, where this part is all of the response
    )


class Reject(_Struct, tag=25):
    """Not begun: the replica is full, or about to stop."""

    id: int
    load: int


class Load(_Struct, tag=26):
    """Tells a caller that was rejected how things stand now, and which models are loaded when that changed."""

    load: int
    models: list[str] | None = None
    stats: bytes | None = None  # what `record_routing_stats` returned, when that changed


class RpcEnd(_Struct, tag=28):
    """The end of the answer to a call over gRPC, and its message if it is the only one; others came as items."""

    id: int
    load: int
    code: int
    details: str = ""
    metadata: Metadata = []
    body: bytes = b""
    compression: int | None = None


class GoAway(_Struct, tag=27):
    """The replica takes no further requests; answer with GoAwayAck, and expect the answers still due."""


# Listener to subscriber, and back.
class Subscribe(_Struct, tag=30):
    """Tell me this, now and whenever it changes."""

    key: str


class Update(_Struct, tag=31):
    """The newest value under a key. Subscribers send what they measured in the same way."""

    key: str
    value: bytes


def acknowledgement_key(key: str) -> str:
    """Return the key under which a subscriber sends back a value that it acts on now."""
    return f"seen:{key}"


Frame = (
    Nonce
    | Hello
    | Welcome
    | Call
    | Http
    | Rpc
    | Chunk
    | Cancel
    | Grant
    | GoAwayAck
    | Reply
    | Fail
    | Item
    | End
    | ResponsePart
    | RpcEnd
    | Reject
    | Load
    | GoAway
    | Subscribe
    | Update
)

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Frame).decode
