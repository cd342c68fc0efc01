"""The tables of the state API as topics, with filters and search."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from starlette.datastructures import QueryParams

from skate._api.observer import Observer
from skate.dashboard._node import Node
from skate.dashboard._tasks import Task, TaskHistory
from skate.dashboard._topics import Handler, Problem, flag, integer
from skate.util.state import common
from skate.util.state._client import check_filters, match_filters
from skate.util.state._rows import NO_CALL_SITE, holder_rows, rows, schema_of
from skate.util.state._schema import StateSchema
from skate.util.state.common import StateResource
from skate.util.state.exception import InvalidQueryError

__all__ = ["TABLES", "Tables"]

DEFAULT_LIMIT: Final = 100
MOST_ROWS: Final = 10_000
MOST_OBJECTS: Final = 1000  # the largest ones, which are all that is asked of the node

TABLES: Final = {
    "tasks": StateResource.TASKS,
    "actors": StateResource.ACTORS,
    "objects": StateResource.OBJECTS,
    "placement_groups": StateResource.PLACEMENT_GROUPS,
    "workers": StateResource.WORKERS,
    "nodes": StateResource.NODES,
    "jobs": StateResource.JOBS,
}
_KEYS: Final = {
    "tasks": ("task_id",),
    "actors": ("actor_id", "name"),
    "objects": ("object_id",),
    "placement_groups": ("placement_group_id", "name"),
    "workers": ("worker_id",),
    "nodes": ("node_id",),
    "jobs": ("submission_id", "job_id"),
}
# Details that the tables show as well, because people look for them first.
_SHOWN: Final = {
    "tasks": ("creation_time_ms", "start_time_ms", "end_time_ms"),
    "actors": ("num_restarts", "required_resources"),
    "placement_groups": ("bundles", "stats"),
    "workers": ("start_time_ms", "end_time_ms", "exit_detail"),
    "jobs": ("start_time", "end_time"),
}


class Tables:
    """The topics /state/TABLE and /state/TABLE/ID.

    Args:
        node: The node.
        history: Its tasks.
    """

    def __init__(self, node: Node, history: TaskHistory) -> None:
        self._node = node
        self._history = history

    def table(self, name: str) -> Handler:
        """Return the handler of a table."""

        async def handle(_: Mapping[str, str], query: QueryParams) -> dict[str, Any]:
            limit = integer(query, "limit", DEFAULT_LIMIT, at_least=1, at_most=MOST_ROWS)
            schema = schema_of(TABLES[name])
            try:
                filters = check_filters([_parse_filter(text) for text in query.getlist("filter")], schema)
            except InvalidQueryError as error:
                raise Problem(400, str(error)) from error
            every = flag(query, "detail")
            columns = schema.list_columns(detail=False) + list(_SHOWN.get(name, ()))
            if every:
                columns = schema.list_columns()
            words = query.get("search", "").lower().split()
            found, total, dropped = await self._rows(name)
            if filters or words:
                found = await self._node.run(_select, found, filters, words, columns)
                total = len(found)
            shown = [_to_dict(_row(each), columns) for each in found[:limit]]
            return {"columns": columns, "rows": shown, "total": total, "dropped": dropped}

        return handle

    def row(self, name: str) -> Handler:
        """Return the handler of one row of a table."""

        async def handle(path: Mapping[str, str], _: QueryParams) -> dict[str, Any]:
            id = path["id"]
            if name == "tasks":
                task = (await self._history.update()).find(id)
                row: StateSchema | None
                row = None if task is None else task.row
            else:
                every, _total, _dropped = await self._rows(name)
                # The id of another row may be the name of this one.
                row = next(
                    (_row(each) for key in _KEYS[name] for each in every if id and _row(each)[key] == id),
                    None,
                )
            if row is None:
                raise Problem(404, f"There is no {name[:-1].replace('_', ' ')} {id}.")
            return _to_dict(row, row.list_columns())

        return handle

    async def _rows(self, name: str) -> tuple[Sequence[Task | StateSchema], int, int]:
        """Return the rows, the number of all rows, and the number of those that are no longer kept."""
        if name == "tasks":
            history = await self._history.update()
            return list(history.newest()), history.total, history.dropped
        if name == "objects" and self._node.session is not None:
            objects, total = await self._node.share("objects", lambda: self._node.ask(_objects))
            return objects, total, 0
        table = TABLES[name]
        listed = await self._node.share(table, lambda: self._node.ask(lambda node: rows(node.engine, table)))
        return listed[::-1], len(listed), 0


def _row(each: Task | StateSchema) -> StateSchema:
    return each.row if isinstance(each, Task) else each


def _select(
    found: Iterable[Task | StateSchema], filters: Any, words: list[str], columns: list[str]
) -> list[Task | StateSchema]:
    """Return the rows that match all filters and contain all words."""
    kept = []
    for each in found:
        row = _row(each)
        if filters and not match_filters([row], filters):
            continue
        if words:
            text = " ".join(str(row[column]) for column in columns).lower()
            if not all(word in text for word in words):
                continue
        kept.append(each)
    return kept


def _parse_filter(text: str) -> common.Filter:
    column, equals, value = text.partition("=")
    if not equals or not column:
        raise InvalidQueryError(f"The filter {text!r} must be column=value or column!=value.")
    if column.endswith("!"):
        return column[:-1], "!=", value
    return column, "=", value


def _to_dict(row: StateSchema, columns: Iterable[str]) -> dict[str, Any]:
    return {column: _plain(row[column]) for column in columns}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


def _objects(node: Observer) -> tuple[list[StateSchema], int]:
    """Return a row for each holder of the largest objects."""
    answer = node.memory(MOST_OBJECTS) or {"objects": [], "total": 0}
    processes = node.processes()
    sites = node.creation_sites([each["object_id"] for each in answer["objects"]])
    found: list[StateSchema] = []
    for each in answer["objects"]:
        status = {"PENDING": "NIL", "ERROR": "FAILED"}.get(each["state"], "FINISHED")
        size = each["size"] if each["state"] != "PENDING" else -1
        found += holder_rows(each, size, processes, sites.get(each["object_id"], NO_CALL_SITE), status)
    return found, answer["total"]
