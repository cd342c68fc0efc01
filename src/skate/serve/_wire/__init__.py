"""The protocol between Serve processes: frames over stream sockets, with mutual secrets and batched writes."""

from skate.serve._wire.address import Address
from skate.serve._wire.link import Link, connect
from skate.serve._wire.listener import Listener

__all__ = ["Address", "Link", "Listener", "connect"]
