"""The state API over HTTP: a client of the paths of Ray's dashboard, which the dashboard of a node serves."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NoReturn
from urllib.parse import quote

from skate._api.dashboard_client import DashboardClient, RefusedError
from skate.util.state._rows import schema_of
from skate.util.state._schema import StateSchema
from skate.util.state.common import (
    DEFAULT_RPC_TIMEOUT,
    RAY_MAX_LIMIT_FROM_API_SERVER,
    Filter,
    ListApiOptions,
    StateResource,
    SummaryApiOptions,
    SummaryResource,
)
from skate.util.state.exception import InvalidQueryError, RayStateApiException, ServerUnavailable

__all__ = ["HttpState"]

Query = list[tuple[str, Any]]
Rows = list[Any]  # inside the class, `list` is the method
_WITHOUT_SERVER: Final = (
    "`skate dashboard` serves the state over HTTP; a node on this machine needs no server."
)
_GRACE_S: Final = 5.0  # for the answer, after the time that the server may take


class HttpState:
    """The state of the node behind a URL.

    Args:
        url: The URL of a dashboard; a token in its query is sent in a header.
        cookies: Cookies of each request.
        headers: Headers of each request.
    """

    def __init__(
        self, url: str, cookies: Mapping[str, Any] | None = None, headers: Mapping[str, Any] | None = None
    ) -> None:
        self._server = DashboardClient(url, cookies, headers, without_server=_WITHOUT_SERVER)
        self.address = self._server.address

    def list(self, resource: StateResource, options: ListApiOptions) -> dict[str, Any]:
        """Return the answer to a list query, whose `result` has the rows."""
        query: Query = [
            ("limit", options.limit),
            ("timeout", options.timeout),
            ("detail", options.detail),
            ("exclude_driver", options.exclude_driver),
            *_filters(options.filters),
        ]
        found = self._ask(f"/api/v0/{resource.value}", query, options.timeout)
        schema = schema_of(resource)
        return {**found, "result": [_row(schema, row) for row in found["result"]]}

    def with_id(self, resource: StateResource, column: str, id: str, timeout: float) -> Rows:
        """Return the rows, with details, whose column has this value."""
        options = ListApiOptions(
            limit=RAY_MAX_LIMIT_FROM_API_SERVER, timeout=timeout, detail=True, filters=[(column, "=", id)]
        )
        found: Rows = self.list(resource, options)["result"]
        return found

    def summary(self, resource: SummaryResource, options: SummaryApiOptions) -> dict[str, Any]:
        """Return the answer to a summary query."""
        query: Query = [("timeout", options.timeout), *_filters(options.filters)]
        if options.summary_by is not None:
            query.append(("summary_by", options.summary_by))
        return self._ask(f"/api/v0/{resource.value}/summarize", query, options.timeout)

    def events(self, timeout: float) -> Any:
        """Return the events of the cluster."""
        return self._ask("/api/v0/cluster_events", [("timeout", timeout)], timeout)["result"]

    def logs(self, timeout: float, **given: Any) -> Any:
        """Return the names of the logs by kind."""
        return self._ask("/api/v0/logs", [*_present(given), ("timeout", timeout)], timeout)

    def log(
        self,
        *,
        follow: bool,
        tail: int,
        timeout: float,
        encoding: str | None,
        errors: str,
        **given: Any,
    ) -> Iterator[Any]:
        """Yield the content of a log: text, or bytes without an encoding."""
        path = f"/api/v0/logs/{'stream' if follow else 'file'}"
        query: Query = [("lines", tail), ("timeout", timeout), *_present(given)]
        decoder = codecs.getincrementaldecoder(encoding)(errors) if encoding else None
        try:
            for piece in self._server.stream(
                path, query=query, timeout_s=None if follow else timeout + _GRACE_S
            ):
                shown = piece if decoder is None else decoder.decode(piece)
                if shown:
                    yield shown
        except (RefusedError, ConnectionError) as error:
            _raise(error)
        if decoder is not None and (rest := decoder.decode(b"", final=True)):
            yield rest

    def why(self, id: str) -> Rows:
        """Return the lines of an explanation. Only the dashboard of a Skate node has them."""
        found: Rows = self._call(f"/state/why/{quote(id, safe='')}", (), DEFAULT_RPC_TIMEOUT)["lines"]
        return found

    def memory(self, limit: int) -> Any:
        """Return the memory of each process. Only the dashboard of a Skate node has it."""
        return self._call("/state/memory", [("limit", limit)], DEFAULT_RPC_TIMEOUT)

    def _ask(self, path: str, query: Query, timeout: float) -> dict[str, Any]:
        answer = self._call(path, query, timeout)
        if not isinstance(answer, dict) or not answer.get("result"):
            raise RayStateApiException(f"{self.address} did not answer {path}: {_text(answer)}")
        found: dict[str, Any] = answer["data"]["result"]
        return found

    def _call(self, path: str, query: Sequence[tuple[str, Any]], timeout: float) -> Any:
        try:
            return self._server.call("GET", path, query=query, timeout_s=timeout + _GRACE_S)
        except (RefusedError, ConnectionError) as error:
            _raise(error)
        except ValueError as error:
            raise RayStateApiException(
                f"{self.address} answered {path} with something other than JSON."
            ) from error


def _raise(error: RefusedError | ConnectionError) -> NoReturn:
    """Raise the error of the state API for an answer of the server."""
    if isinstance(error, ConnectionError):
        raise ServerUnavailable(str(error)) from error
    if error.status not in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        try:
            text = _text(json.loads(error.text))
        except ValueError:
            text = ""
        if text:
            is_invalid = error.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND)
            raise (InvalidQueryError if is_invalid else RayStateApiException)(text) from None
    raise RayStateApiException(str(error)) from None


def _text(answer: Any) -> str:
    """Return the message of an answer, or of an error of the dashboard's own paths."""
    if not isinstance(answer, dict):
        return ""
    return str(answer.get("msg") or answer.get("detail") or "")


def _present(given: Mapping[str, Any]) -> Query:
    return [(name, value) for name, value in given.items() if value is not None]


def _filters(filters: Sequence[Filter] | None) -> Query:
    """Return the parameters of filters: a key, a predicate and a value each."""
    query: Query = []
    for each in filters or ():
        if not isinstance(each, (tuple, list)) or len(each) != 3:
            raise InvalidQueryError(f"A filter must be (column, '=' or '!=', value), got {each!r}")
        query += zip(("filter_keys", "filter_predicates", "filter_values"), each, strict=True)
    return query


def _row(schema: type[StateSchema], row: Mapping[str, Any]) -> StateSchema:
    """Return a row that a server sent; columns of newer servers are left out, those of older ones are None."""
    return schema(
        **{name: row.get(name) for name in schema.list_columns(detail=False)},
        **{name: row[name] for name in schema.detail_columns() if name in row},
    )
