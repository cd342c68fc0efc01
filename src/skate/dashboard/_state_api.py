"""The state API over HTTP: Ray's paths, so that Ray's `StateApiClient` and `ray list` work with a node."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any, Final

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from skate._api.observer import Observer
from skate.dashboard._node import Node
from skate.dashboard._rest import as_envelope, envelope
from skate.dashboard._topics import Problem, integer, number
from skate.util.state._client import check_filters, match_filters, summary, table_of
from skate.util.state._rows import rows, schema_of
from skate.util.state._schema import StateSchema
from skate.util.state.common import (
    DEFAULT_LIMIT,
    DEFAULT_RPC_TIMEOUT,
    RAY_MAX_LIMIT_FROM_API_SERVER,
    Filter,
    StateResource,
    SummaryResource,
)
from skate.util.state.exception import InvalidQueryError

__all__ = ["StateApi", "boolean", "timeout_of"]

LONGEST_TIMEOUT_S: Final = 3600.0
_WORDS: Final = {"true": True, "1": True, "false": False, "0": False}
_GROUPINGS: Final = {
    SummaryResource.TASKS: "func_name",
    SummaryResource.ACTORS: "class",
    SummaryResource.OBJECTS: "callsite",
}


class StateApi:
    """The paths /api/v0/TABLE and /api/v0/TABLE/summarize.

    Args:
        node: The node.
    """

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        lists = [(each.value, self._list(each)) for each in StateResource]
        summaries = [(f"{each.value}/summarize", self._summarize(each)) for each in SummaryResource]
        return [
            Route(f"/api/v0/{path}", as_envelope(handle), methods=["GET"])
            for path, handle in (*lists, *summaries, ("cluster_events", self._events))
        ]

    def _list(self, table: StateResource) -> Callable[[Request], Any]:
        async def handle(request: Request) -> Response:
            query = request.query_params
            limit = integer(query, "limit", DEFAULT_LIMIT, at_least=1, at_most=RAY_MAX_LIMIT_FROM_API_SERVER)
            detail = boolean(query, "detail", default=False)
            boolean(query, "exclude_driver", default=True)  # no table has a row for a driver's main program
            columns = schema_of(table).list_columns(detail=detail)
            return await self._answer(
                table, query, lambda found: [_to_dict(row, columns) for row in found[:limit]]
            )

        return handle

    def _summarize(self, resource: SummaryResource) -> Callable[[Request], Any]:
        async def handle(request: Request) -> Response:
            grouping = request.query_params.get("summary_by", _GROUPINGS[resource])
            if grouping != _GROUPINGS[resource]:
                raise Problem(
                    400, f"{resource.value} are summarized by {_GROUPINGS[resource]!r}, not by {grouping!r}."
                )
            return await self._answer(
                table_of(resource),
                request.query_params,
                lambda found: {"node_id_to_summary": summary(resource, found)},
            )

        return handle

    async def _answer(
        self, table: StateResource, query: QueryParams, shape: Callable[[list[StateSchema]], Any]
    ) -> Response:
        """Answer with the rows of a table that match the filters of a query.

        Args:
            table: The table.
            query: The query.
            shape: Returns what is shown of the rows; it runs in a thread.
        """
        try:
            filters = check_filters(_filters(query), schema_of(table))
        except InvalidQueryError as error:
            raise Problem(400, str(error)) from error

        def read(observer: Observer) -> dict[str, Any]:
            every = rows(observer.engine, table)
            found = match_filters(every, filters)
            return _listed(len(every), len(found), shape(found))

        timeout_s = timeout_of(query)
        try:
            async with asyncio.timeout(timeout_s):
                listed = await self._node.ask(read)
        except TimeoutError:
            raise Problem(504, f"The node has not answered for {timeout_s:g} seconds.") from None
        return envelope("", {"result": listed})

    async def _events(self, request: Request) -> Response:
        self._node.local_session("The events of a Ray cluster are in Ray's own dashboard.")
        return envelope("", {"result": _listed(0, 0, [])})  # a node records no events besides its logs


def _listed(total: int, matching: int, result: Any) -> dict[str, Any]:
    return {
        "total": total,
        "num_after_truncation": total,
        "num_filtered": matching,
        "result": result,
        "partial_failure_warning": None,
        "warnings": None,
    }


def _filters(query: QueryParams) -> list[Filter]:
    """Return the filters of a query: one key, predicate and value each."""
    names = ("filter_keys", "filter_predicates", "filter_values")
    keys, predicates, values = (query.getlist(name) for name in names)
    if not len(keys) == len(predicates) == len(values):
        raise Problem(
            400,
            f"Each filter needs a key, a predicate and a value, got {len(keys)} {names[0]}, {len(predicates)} "
            f"{names[1]} and {len(values)} {names[2]}.",
        )
    return list(zip(keys, predicates, values, strict=True))


def boolean(query: QueryParams, name: str, *, default: bool) -> bool:
    """Return a parameter of a query as a boolean.

    Raises:
        Problem: It is another word than true, false, 1 and 0.
    """
    text = query.get(name)
    if text is None:
        return default
    if text.lower() not in _WORDS:
        raise Problem(400, f"{name} must be true or false, got {text!r}.")
    return _WORDS[text.lower()]


def timeout_of(query: QueryParams) -> float:
    """Return the seconds that a query gives the node to answer.

    Raises:
        Problem: It is not a positive number.
    """
    seconds = number(query, "timeout", DEFAULT_RPC_TIMEOUT)
    if not seconds > 0:
        raise Problem(400, f"timeout must be a positive number of seconds, got {query['timeout']!r}.")
    return min(seconds, LONGEST_TIMEOUT_S)


def _to_dict(row: StateSchema, columns: list[str]) -> dict[str, Any]:
    found = {column: row[column] for column in columns}
    return {
        column: dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value  # type: ignore[arg-type]
        for column, value in found.items()
    }
