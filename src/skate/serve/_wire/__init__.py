"""How processes of Serve talk: small frames over stream sockets, batched, between processes that know a secret."""

from skate.serve._wire.address import Address
from skate.serve._wire.link import Link, connect
from skate.serve._wire.listener import Listener

__all__ = ["Address", "Link", "Listener", "connect"]
