"""Which application answers which path."""

from __future__ import annotations

import msgspec

__all__ = ["Route"]


class Route(msgspec.Struct, frozen=True):
    """The way to one application."""

    prefix: str
    app: str
    deployment: str
    is_asgi: bool = False
    is_ready: bool = True
    retry_lost: bool | None = None

    @property
    def root(self) -> str:
        """What stands before the paths that the application knows."""
        return "" if self.prefix == "/" else self.prefix
