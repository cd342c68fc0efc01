"""Topics: the facts of the dashboard, each with one path that answers GET requests and can be subscribed to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from re import Pattern
from typing import Any
from urllib.parse import unquote, urlsplit

from starlette.datastructures import QueryParams
from starlette.routing import compile_path

__all__ = ["Handler", "Problem", "Topics", "flag", "integer", "number"]

Handler = Callable[[Mapping[str, str], QueryParams], Awaitable[Any]]


class Problem(Exception):
    """A request that cannot be answered.

    Args:
        status: The HTTP status.
        detail: What happened, and what to do.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class Topics:
    """The handlers of all topics, by path."""

    def __init__(self) -> None:
        self._handlers: list[tuple[Pattern[str], Handler]] = []

    def add(self, path: str, handler: Handler) -> None:
        """Add a topic.

        Args:
            path: Its path, with parameters as in Starlette's routes.
            handler: Returns its data, which can be encoded as JSON; it gets the parameters of the path and the query.
        """
        self._handlers.append((compile_path(path)[0], handler))

    async def answer(self, path: str, query: QueryParams) -> Any:
        """Return the data of a topic.

        Raises:
            Problem: The topic does not exist, or cannot be answered.
        """
        for pattern, handler in self._handlers:
            match = pattern.match(path)
            if match is not None:
                return await handler(match.groupdict(), query)
        raise Problem(404, f"There is no {path}.")

    async def answer_url(self, url: str) -> Any:
        """Return the data of a topic given as a path with a query."""
        parts = urlsplit(url)
        return await self.answer(unquote(parts.path), QueryParams(parts.query))


def integer(query: QueryParams, name: str, default: int, *, at_least: int = 0, at_most: int) -> int:
    """Return a parameter of a query as an integer.

    Raises:
        Problem: It is not an integer, or out of range.
    """
    text = query.get(name)
    if text is None:
        return default
    if not text.lstrip("-").isdecimal() or not at_least <= int(text) <= at_most:
        raise Problem(400, f"{name} must be an integer from {at_least} to {at_most}, got {text!r}.")
    return int(text)


def number(query: QueryParams, name: str, default: float) -> float:
    """Return a parameter of a query as a number.

    Raises:
        Problem: It is not a number.
    """
    try:
        return float(query.get(name, default))
    except ValueError:
        raise Problem(400, f"{name} must be a number, got {query.get(name)!r}.") from None


def flag(query: QueryParams, name: str) -> bool:
    """Return whether a parameter of a query is on."""
    return query.get(name, "").lower() in ("1", "true", "yes", "on")
