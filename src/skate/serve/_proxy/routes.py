"""The table of routes: which application a path belongs to."""

from __future__ import annotations

import json
from collections.abc import Sequence

from skate.serve._routes import Route

__all__ = ["RouteTable"]


class RouteTable:
    """Finds the application with the longest prefix that a path starts with, at a slash.

    >>> table = RouteTable()
    >>> table.update([Route("/", "all", "A"), Route("/v1", "new", "B")])
    >>> table.match("/v1/chat").app, table.match("/v1x").app
    ('new', 'all')
    """

    def __init__(self) -> None:
        self._routes: list[Route] = []
        self._only: Route | None = None  # the one route that takes everything, if that is all there is

    def update(self, routes: Sequence[Route]) -> None:
        """Replace the table."""
        self._routes = sorted(routes, key=lambda route: len(route.prefix), reverse=True)
        self._only = self._routes[0] if len(self._routes) == 1 and self._routes[0].prefix == "/" else None

    @property
    def is_known(self) -> bool:
        """Whether there is a route at all."""
        return bool(self._routes)

    def match(self, path: str) -> Route | None:
        """Return the route for a path, or None."""
        if self._only is not None:
            return self._only
        for route in self._routes:
            prefix = route.prefix
            if prefix == "/" or path == prefix or path.startswith(prefix + "/"):
                return route
        return None

    def as_json(self) -> str:
        """Return prefixes and the applications they lead to."""
        return json.dumps(
            {route.prefix: route.app for route in sorted(self._routes, key=lambda each: each.prefix)}
        )
