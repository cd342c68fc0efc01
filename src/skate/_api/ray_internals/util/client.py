"""Replaces `ray.util.client`: Skate never connects through Ray Client."""

from __future__ import annotations

__all__ = ["ClientContext", "RayAPIStub", "num_connected_contexts", "ray"]


class ClientContext:
    """The connection of this process to a client server, which never exists."""

    def is_connected(self) -> bool:
        """Return False: a driver of Skate is a process of its session."""
        return False


class RayAPIStub:
    """Returns the connection of this process."""

    def get_context(self) -> ClientContext:
        """Return the connection of this process."""
        return ClientContext()

    def is_connected(self) -> bool:
        """Return False."""
        return self.get_context().is_connected()


def num_connected_contexts() -> int:
    """Return 0, the number of connections."""
    return 0


ray = RayAPIStub()
