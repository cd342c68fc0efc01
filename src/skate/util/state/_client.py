"""The client for all queries of the state API: lists, single rows, summaries and explanations."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from skate._base.ids import OBJECT_SIZE, TASK_SIZE, object_id
from skate._base.object_ref import ObjectRef
from skate._base.suggestions import did_you_mean
from skate.util.state._attachment import attach, dashboard_at
from skate.util.state._rows import NO_CALL_SITE, clear_details, rows, schema_of
from skate.util.state._schema import StateSchema
from skate.util.state.common import (
    RAY_MAX_LIMIT_FROM_API_SERVER,
    ActorState,
    Filter,
    GetApiOptions,
    ListApiOptions,
    NodeState,
    StateResource,
    SummaryApiOptions,
    SummaryResource,
)
from skate.util.state.exception import InvalidQueryError, RayStateApiException

Rows = list[Any]  # inside the class, `list` is the method

_KEYS = {
    StateResource.ACTORS: "actor_id",
    StateResource.TASKS: "task_id",
    StateResource.OBJECTS: "object_id",
    StateResource.NODES: "node_id",
    StateResource.WORKERS: "worker_id",
    StateResource.PLACEMENT_GROUPS: "placement_group_id",
}
# The states of the rows; a filter on another one would never match.
_STATES: dict[type[StateSchema], tuple[str, ...]] = {
    ActorState: ("DEPENDENCIES_UNREADY", "PENDING_CREATION", "ALIVE", "RESTARTING", "DEAD"),
    NodeState: ("ALIVE", "DEAD"),
}
S = TypeVar("S", bound=StateSchema)
OPERATORS = ("=", "!=")
_TRUE = ("true", "1")
_FALSE = ("false", "0")
MEBIBYTE = 1 << 20


class StateApiClient:
    """Query the state of a node.

    A node on this machine replies immediately and completely from memory. `timeout` and `raise_on_missing_output` have
    an effect over HTTP only.

    Args:
        address: Address of the node, or the URL of its dashboard with the token; None means the session of this
            process, else the node of `skate start`. Ray's default "http://127.0.0.1:8265" without a token means "auto".
        cookies: Cookies of requests to a URL.
        headers: Headers of requests to a URL, such as `{"Authorization": "Bearer TOKEN"}`.
    """

    def __init__(
        self,
        address: str | None = None,
        cookies: dict[str, Any] | None = None,
        headers: dict[str, Any] | None = None,
    ) -> None:
        self._address = address
        self._http = dashboard_at(address, cookies, headers)

    def get_address(self) -> str:
        """Return the address of the node: the folder of its session, or the URL of its dashboard."""
        if self._http is not None:
            return self._http.address
        with attach(self._address) as engine:
            return engine.context().session

    def list(
        self,
        resource: StateResource,
        options: ListApiOptions,
        raise_on_missing_output: bool = True,
        _explain: bool = False,
    ) -> Rows:
        """Return the rows of a table that match the filters, up to the limit.

        Raises:
            InvalidQueryError: A filter or the limit is invalid.
            RayStateApiException: The server does not answer, or does not know all rows.
        """
        _check_limit(options.limit)
        found: Rows
        if self._http is None:
            filters = check_filters(options.filters, schema_of(resource))
            with attach(self._address) as engine:
                matching = match_filters(rows(engine, resource), filters)
            count, found = len(matching), matching[: options.limit]
            if not options.detail:
                found = [clear_details(row) for row in found]
        else:
            answer = self._http.list(resource, options)
            if raise_on_missing_output:
                _check_complete(answer, resource.value)
            count, found = answer["num_filtered"], answer["result"]
        if _explain and count > options.limit:
            warnings.warn(
                f"{options.limit} of {count} {resource.value} are shown: use filters, or raise the limit.",
                stacklevel=3,
            )
        return found

    def get(
        self, resource: StateResource, id: str, options: GetApiOptions | None = None, _explain: bool = False
    ) -> Any:
        """Return the row with this id, with details; None if it does not exist.

        For objects, and for tasks with several attempts, return a list of rows.
        """
        found = self._with_id(resource, id, options or GetApiOptions())
        if resource is StateResource.OBJECTS or (resource is StateResource.TASKS and len(found) > 1):
            return found
        return found[0] if found else None

    def _with_id(self, resource: StateResource, id: str, options: GetApiOptions) -> Rows:
        if resource is not StateResource.JOBS and resource not in _KEYS:
            raise InvalidQueryError(f"{resource.value} cannot be looked up by id: list them with a filter.")
        columns = ("submission_id", "job_id") if resource is StateResource.JOBS else (_KEYS[resource],)
        found: Rows
        if self._http is not None:
            for column in columns:
                found = self._http.with_id(resource, column, id, options.timeout)
                if found:
                    break
            return found
        with attach(self._address) as engine:
            found = rows(engine, resource)
        return [row for row in found if any(row[column] == id for column in columns)]

    def summary(
        self,
        resource: SummaryResource,
        *,
        options: SummaryApiOptions | None = None,
        raise_on_missing_output: bool = True,
        _explain: bool = False,
    ) -> dict[str, Any]:
        """Return counts of the rows of a table, by name or class.

        Raises:
            InvalidQueryError: A filter is invalid.
            RayStateApiException: The server does not answer, or does not know all rows.
        """
        options = options or SummaryApiOptions()
        if self._http is not None:
            answer = self._http.summary(resource, options)
            if raise_on_missing_output:
                _check_complete(answer, resource.value)
            counts: dict[str, Any] = answer["result"]["node_id_to_summary"]
            return counts
        table = table_of(resource)
        filters = check_filters(options.filters, schema_of(table))
        with attach(self._address) as engine:
            found = match_filters(rows(engine, table), filters)
        return summary(resource, found)


def _check_complete(answer: dict[str, Any], name: str) -> None:
    if answer.get("partial_failure_warning") or answer["total"] > answer["num_after_truncation"]:
        raise RayStateApiException(
            f"The server knows {answer['num_after_truncation']} of {answer['total']} {name}: "
            f"{answer.get('partial_failure_warning') or 'the others were left out.'} To get those, pass "
            "raise_on_missing_output=False."
        )


def _check_limit(limit: int) -> None:
    if not isinstance(limit, int) or limit < 1:
        raise InvalidQueryError(f"The limit must be a positive integer, got {limit!r}")
    if limit > RAY_MAX_LIMIT_FROM_API_SERVER:
        raise InvalidQueryError(
            f"The limit {limit} is too high: at most {RAY_MAX_LIMIT_FROM_API_SERVER} rows can be listed."
        )


def check_filters(filters: Sequence[Filter] | None, schema: type[StateSchema]) -> list[tuple[str, str, Any]]:
    """Return the validated filters, with values converted to the types of their columns.

    Raises:
        InvalidQueryError: A column, operator or value is invalid.
    """
    return [_check_filter(each, schema) for each in filters or []]


def _check_filter(each: Any, schema: type[StateSchema]) -> tuple[str, str, Any]:
    if not isinstance(each, (tuple, list)) or len(each) != 3:
        raise InvalidQueryError(f"A filter must be (column, '=' or '!=', value), got {each!r}")
    column, operator, value = each
    if operator not in OPERATORS:
        raise InvalidQueryError(
            f"The filter {each!r} has the operator {operator!r}; '=' and '!=' are supported."
        )
    known = schema.filterable_columns()
    column = str(column).lower()
    if column not in known:
        hint = did_you_mean(column, known)
        raise InvalidQueryError(
            f"Cannot filter by {column!r}; filters may use {', '.join(sorted(known))}.{hint}"
        )
    states = _STATES.get(schema, ()) if column == "state" else ()
    if states and str(value).upper() not in states:
        hint = did_you_mean(str(value).upper(), states)
        raise InvalidQueryError(f"There is no state {value!r}; the states are {', '.join(states)}.{hint}")
    return column, operator, _parse_value(column, value, schema.kind_of(column))


def _parse_value(column: str, value: Any, kind: type) -> Any:
    if kind is bool and not isinstance(value, bool):
        word = str(value).lower()
        if word not in _TRUE + _FALSE:
            raise InvalidQueryError(f"The filter on {column!r} needs true or false, got {value!r}")
        return word in _TRUE
    if kind in (int, float) and value is not None:
        try:
            return kind(value)
        except (TypeError, ValueError) as error:
            noun = "an integer" if kind is int else "a number"
            raise InvalidQueryError(f"The filter on {column!r} needs {noun}, got {value!r}") from error
    return value


def match_filters(rows: Iterable[S], filters: list[tuple[str, str, Any]]) -> list[S]:
    """Return the rows that match all filters; text is compared case-insensitively."""
    return [
        row
        for row in rows
        if all(_is_equal(row[column], value) == (operator == "=") for column, operator, value in filters)
    ]


def _is_equal(found: Any, wanted: Any) -> bool:
    if isinstance(found, str) and isinstance(wanted, str):
        return found.lower() == wanted.lower()
    if isinstance(wanted, str) and isinstance(found, (dict, list)):
        return str(found) == wanted
    return bool(found == wanted)


def summary(resource: SummaryResource, rows: list[Any]) -> dict[str, Any]:
    """Return a summary in Ray's format, under the key "cluster"."""
    return {"cluster": _SUMMARIES[resource](rows)}


def table_of(resource: SummaryResource) -> StateResource:
    """Return the table that a summary counts."""
    return StateResource(resource.value)


def _tasks(rows: list[Any]) -> dict[str, Any]:
    groups: dict[str, Any] = {}
    for row in rows:
        name = row.name or row.func_or_class_name
        group = groups.setdefault(
            name, {"func_or_class_name": row.func_or_class_name, "type": row.type, "state_counts": Counter()}
        )
        group["state_counts"][row.state] += 1
    kinds = Counter(row.type for row in rows)
    return {
        "summary": _to_plain(groups),
        "total_tasks": kinds["NORMAL_TASK"],
        "total_actor_tasks": kinds["ACTOR_TASK"],
        "total_actor_scheduled": kinds["ACTOR_CREATION_TASK"],
        "summary_by": "func_name",
    }


def _actors(rows: list[Any]) -> dict[str, Any]:
    groups: dict[str, Any] = {}
    for row in rows:
        group = groups.setdefault(row.class_name, {"class_name": row.class_name, "state_counts": Counter()})
        group["state_counts"][row.state] += 1
    return {"summary": _to_plain(groups), "total_actors": len(rows), "summary_by": "class"}


def _objects(rows: list[Any]) -> dict[str, Any]:
    by_site: dict[str, list[Any]] = {}
    for row in rows:
        by_site.setdefault(row.call_site, []).append(row)
    return {
        "summary": {site: _summarize_objects(found) for site, found in by_site.items()},
        "total_objects": len(rows),
        "total_size_mb": _size_mb(rows),
        "callsite_enabled": any(site != NO_CALL_SITE for site in by_site),
        "summary_by": "callsite",
    }


def _summarize_objects(rows: list[Any]) -> dict[str, Any]:
    return {
        "total_objects": len(rows),
        "total_size_mb": _size_mb(rows),
        "total_num_workers": len({row.pid for row in rows}),
        "total_num_nodes": len({row.ip for row in rows}),
        "task_state_counts": dict(Counter(row.task_status for row in rows)),
        "task_attempt_number_counts": dict(Counter(str(row.attempt_number + 1) for row in rows)),
        "ref_type_counts": dict(Counter(row.reference_type for row in rows)),
    }


def _size_mb(rows: list[Any]) -> float:
    return float(sum(max(0, row.object_size) for row in rows) / MEBIBYTE)


def _to_plain(groups: dict[str, Any]) -> dict[str, Any]:
    return {name: {**group, "state_counts": dict(group["state_counts"])} for name, group in groups.items()}


_SUMMARIES: dict[SummaryResource, Callable[[list[Any]], dict[str, Any]]] = {
    SummaryResource.TASKS: _tasks,
    SummaryResource.ACTORS: _actors,
    SummaryResource.OBJECTS: _objects,
}


def why(ref: ObjectRef[Any] | str, address: str | None = None) -> str:
    """Explain what a reference waits for, one step per line, down to the cause.

    Not in Ray.

    Args:
        ref: A reference, or the id of an object or a task in hexadecimal digits.
        address: Address of the node; see `list_actors`.

    Returns:
        The explanation as text.

    >>> import skate
    >>> from skate.util.state import why
    >>> context = skate.init(num_cpus=1)
    >>> print(why(skate.put(1)).partition(" ")[0])
    object
    >>> skate.shutdown()
    """
    subject = _object_id(ref) if isinstance(ref, str) else ref
    if not isinstance(ref, (str, ObjectRef)):
        raise TypeError(f"why() takes an ObjectRef or the id of a task or object, got {type(ref).__name__}")
    http = dashboard_at(address)
    if http is not None:
        return "\n".join(http.why(ref if isinstance(ref, str) else ref.hex()))
    with attach(address) as engine:
        lines = engine.why(subject) if isinstance(subject, ObjectRef) else engine.why_by_id(subject)
        if lines is None:
            raise InvalidQueryError(f"The {engine.name} engine cannot look up ids: pass the reference.")
    return "\n".join(lines)


def _object_id(text: str) -> bytes:
    try:
        id = bytes.fromhex(text)
    except ValueError as error:
        raise InvalidQueryError(f"{text!r} is not an id: ids are hexadecimal digits") from error
    if len(id) == TASK_SIZE:
        id = object_id(id, 1)
    if len(id) != OBJECT_SIZE:
        raise InvalidQueryError(
            f"{text!r} is not the id of a task ({2 * TASK_SIZE} digits) or an object ({2 * OBJECT_SIZE} digits)"
        )
    return id
