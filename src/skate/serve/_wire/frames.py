"""The messages between Serve processes: one struct per kind.

They are encoded as MessagePack arrays whose first element is the kind. They contain users' values as pickled bytes, and
nothing in this package unpickles them. Annotations are not postponed here: msgspec would evaluate them from text.
"""

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
Metadata = list[tuple[str, Any]]  # of gRPC: values are text, or bytes for names that end in "-bin"


class _Struct(msgspec.Struct, array_like=True, gc=False):
    """A struct that is encoded as an array."""


class Context(_Struct):
    """The context that a request passes to the requests it makes."""

    request_id: str
    app: str = ""
    route: str = ""
    model: str = ""  # the id of the requested model
    session: str = ""
    retry: bool = False  # whether another replica may process it if its replica dies
    trace: dict[str, str] | None = None  # the OpenTelemetry trace context
    method: str = ""  # the HTTP method


class Scope(_Struct):
    """The head of an HTTP request or of a websocket handshake."""

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


# Authentication, in both directions.
class Nonce(_Struct, tag=1):
    """The listener's challenge."""

    nonce: bytes


class Hello(_Struct, tag=2):
    """The caller's proof that it knows the secret, and its name."""

    proof: bytes
    name: str


class Welcome(_Struct, tag=3):
    """The listener accepts the caller, and describes itself."""

    about: dict[str, Any]


# Caller to replica.
class Call(_Struct, tag=10):
    """Call a method. Without `args`, an actor call delivers the arguments."""

    id: int
    method: str
    context: Context
    args: bytes | None
    stream: bool = False
    force: bool = False  # process it even if the replica is full


class Http(_Struct, tag=11):
    """Process an HTTP request or a websocket."""

    id: int
    context: Context
    scope: Scope
    body: bytes
    more: bool  # chunks with further parts of the body follow


class Chunk(_Struct, tag=12):
    """A part of a request's body, or an event from a websocket client."""

    id: int
    data: bytes
    more: bool = True
    event: dict[str, Any] | None = None


class Cancel(_Struct, tag=13):
    """Cancel a request."""

    id: int


class Grant(_Struct, tag=14):
    """Allow the peer to send more parts. Both sides send it."""

    id: int
    count: int


class GoAwayAck(_Struct, tag=15):
    """Acknowledge `GoAway`: the caller sends no further requests over this link."""


class Rpc(_Struct, tag=16):
    """Process a gRPC call. Messages keep the encoding of the client."""

    id: int
    context: Context
    method: str
    codec: bytes  # the pickled deserializer and serializer of its messages
    metadata: Metadata
    peer: str
    auth: dict[str, Any]
    body: bytes
    more: bool  # the client sends a stream, whose messages follow as chunks
    stream: bool  # whether the answer is a stream


# Replica to caller. `load` is the number of ongoing requests at the replica, of all callers.
class Reply(_Struct, tag=20):
    """The result of a call. Without `value`, the caller fetches it by an actor call."""

    id: int
    load: int
    value: bytes | None


class Fail(_Struct, tag=21):
    """The call raised an error."""

    id: int
    load: int
    error: bytes


class Item(_Struct, tag=22):
    """One value of a stream. Without `value`, the caller fetches it by an actor call under `number`."""

    id: int
    value: bytes | None
    number: int = 0


class End(_Struct, tag=23):
    """The end of a stream."""

    id: int
    load: int


class ResponsePart(_Struct, tag=24):
    """A part of an HTTP response: the head with the first part of the body, or a further part."""

    id: int
    load: int
    status: int  # 0 in further parts
    headers: Headers
    body: bytes
    more: bool
    event: dict[str, Any] | None = None  # an event for a websocket client
    trailers: bool = False
    replica_time_s: float = 0.0  # seconds that the replica took, if this is the only part of the response


class Reject(_Struct, tag=25):
    """The replica did not begin the request, because it is full or stopping."""

    id: int
    load: int


class Load(_Struct, tag=26):
    """The current load for callers that were rejected, and the loaded models if they changed."""

    load: int
    models: list[str] | None = None
    stats: bytes | None = None  # the result of `record_routing_stats`, if it changed


class RpcEnd(_Struct, tag=28):
    """The end of the answer to a gRPC call, with the message of a unary answer. Messages of a stream are items."""

    id: int
    load: int
    code: int
    details: str = ""
    metadata: Metadata = []
    body: bytes = b""
    compression: int | None = None


class GoAway(_Struct, tag=27):
    """The replica takes no further requests. Callers acknowledge it, and still receive pending answers."""


# Publisher to subscriber, and back.
class Subscribe(_Struct, tag=30):
    """Subscribe to a topic: its current value and all updates."""

    key: str


class Update(_Struct, tag=31):
    """The newest value of a topic. Subscribers send load reports and acknowledgements as updates, too."""

    key: str
    value: bytes


def acknowledgement_key(key: str) -> str:
    """Return the topic under which a subscriber acknowledges a value."""
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
