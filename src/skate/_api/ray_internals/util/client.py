"""Stands for `ray.util.client`: says that there is no connection through a Ray client, as there never is."""

from __future__ import annotations

__all__ = ["ClientContext", "RayAPIStub", "num_connected_contexts", "ray"]


class ClientContext:
    """The connection of this process to a client server: none."""

    def is_connected(self) -> bool:
        """Return False: a driver of Skate takes part in its session itself."""
        return False


class RayAPIStub:
    """What programs ask for the connection."""

    def get_context(self) -> ClientContext:
        """Return the connection of this process."""
        return ClientContext()

    def is_connected(self) -> bool:
        """Return False, as the connection does."""
        return self.get_context().is_connected()


def num_connected_contexts() -> int:
    """Return 0, the number of connections."""
    return 0


ray = RayAPIStub()
