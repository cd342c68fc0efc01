"""The client that all questions of the state API go through."""

from __future__ import annotations

import warnings
from typing import Any

from skate.util.state._attachment import attached
from skate.util.state._filters import checked, matching
from skate.util.state._rows import rows, schema_of, without_details
from skate.util.state._summaries import summary, table_of
from skate.util.state.common import (
    RAY_MAX_LIMIT_FROM_API_SERVER,
    GetApiOptions,
    ListApiOptions,
    StateResource,
    SummaryApiOptions,
    SummaryResource,
)
from skate.util.state.exception import InvalidQueryError

Rows = list[Any]  # inside the class, `list` is the method

_KEYS = {
    StateResource.ACTORS: "actor_id",
    StateResource.TASKS: "task_id",
    StateResource.OBJECTS: "object_id",
    StateResource.NODES: "node_id",
    StateResource.WORKERS: "worker_id",
    StateResource.PLACEMENT_GROUPS: "placement_group_id",
}


class StateApiClient:
    """Asks a node what there is.

    The node answers from its own memory, at once and completely, so that `timeout` and
    `raise_on_missing_output`, which Ray needs, change nothing here.

    Args:
        address: Of the node; None asks the session of this process, else the node of `skate start`.
        cookies: Ignored: nothing goes over HTTP.
        headers: Ignored.
    """

    def __init__(
        self,
        address: str | None = None,
        cookies: dict[str, Any] | None = None,
        headers: dict[str, Any] | None = None,
    ) -> None:
        self._address = address

    def get_address(self) -> str:
        """Return the address of the node."""
        with attached(self._address) as engine:
            return engine.context().session

    def list(
        self,
        resource: StateResource,
        options: ListApiOptions,
        raise_on_missing_output: bool = True,
        _explain: bool = False,
    ) -> Rows:
        """Return the rows of a table that meet the options' filters, up to their limit.

        Raises:
            InvalidQueryError: A filter or the limit cannot be right.
        """
        _check_limit(options.limit)
        filters = checked(options.filters, schema_of(resource))
        with attached(self._address) as engine:
            found = matching(rows(engine, resource), filters)
        if _explain and len(found) > options.limit:
            warnings.warn(
                f"{options.limit} of {len(found)} {resource.value} are shown: filter, or raise the limit.",
                stacklevel=3,
            )
        found = found[: options.limit]
        return found if options.detail else [without_details(row) for row in found]

    def get(
        self, resource: StateResource, id: str, options: GetApiOptions | None = None, _explain: bool = False
    ) -> Any:
        """Return the row with this id, with details; None if there is none.

        Objects, and tasks that were tried more than once, give a list of rows.
        """
        found = self._with_id(resource, id)
        if resource is StateResource.OBJECTS or (resource is StateResource.TASKS and len(found) > 1):
            return found
        return found[0] if found else None

    def _with_id(self, resource: StateResource, id: str) -> Rows:
        with attached(self._address) as engine:
            every: Rows = rows(engine, resource)
        if resource is StateResource.JOBS:
            return [row for row in every if id in (row.job_id, row.submission_id)]
        if resource not in _KEYS:
            raise InvalidQueryError(f"{resource.value} have no id to get them by: list them and filter.")
        return [row for row in every if row[_KEYS[resource]] == id]

    def summary(
        self,
        resource: SummaryResource,
        *,
        options: SummaryApiOptions | None = None,
        raise_on_missing_output: bool = True,
        _explain: bool = False,
    ) -> dict[str, Any]:
        """Return counts of a table's rows by what they are instances of."""
        table = table_of(resource)
        filters = checked(options.filters if options else None, schema_of(table))
        with attached(self._address) as engine:
            found = matching(rows(engine, table), filters)
        return summary(resource, found)


def _check_limit(limit: int) -> None:
    if not isinstance(limit, int) or limit < 1:
        raise InvalidQueryError(f"The limit must be a positive whole number, not {limit!r}")
    if limit > RAY_MAX_LIMIT_FROM_API_SERVER:
        raise InvalidQueryError(
            f"Given limit {limit} exceeds the supported limit {RAY_MAX_LIMIT_FROM_API_SERVER}."
        )
