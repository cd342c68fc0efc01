"""Candidates of shell completion: ids and names from the node, and files.

The shell waits for them, so they ask only a node on this machine, and import nothing that is slow. After an error there
are no candidates: a message would disturb the line that the user edits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from skate._api import nodes
from skate.exceptions import RayError

__all__ = ["actors", "addresses", "files", "jobs", "log_names", "one_of", "resource_ids", "waiting_tasks"]

Candidate = tuple[str, str]  # a value, and its description
Items = list["CompletionItem[str]"]
Complete = Callable[[click.Context, click.Parameter, str], Items]

_MOST: Final = 200
# Shells split and expand other characters, so such a value would not be inserted as it is.
_PLAIN: Final = re.compile(r"[\w.:@/+=-]+")


def one_of(words: Iterable[str]) -> Complete:
    """Return the completion of an argument with fixed values."""
    fixed = [(word, "") for word in words]
    return lambda ctx, param, incomplete: _items(fixed, incomplete)


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Let the shell complete the name of a file."""
    return [CompletionItem(incomplete, type="file")]


def addresses(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Return "auto" and the folders of running nodes."""
    try:
        found = [(node.folder, node.process) for node in nodes.nodes()]
    except (OSError, nodes.UnusableFolderError):
        found = []
    return _items([("auto", "the node of `skate start`"), *found], incomplete)


def actors(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Return the names of living actors, and the ids of those without one."""
    from skate.util.state.common import StateResource

    rows = [row for row in _rows(ctx, StateResource.ACTORS) if row.state != "DEAD"]
    return _items([(row.name or row.actor_id, row.class_name) for row in rows], incomplete)


def jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Return the submission ids of jobs."""
    from skate.util.state.common import StateResource

    rows = _rows(ctx, StateResource.JOBS)
    return _items([(row.submission_id or "", row.entrypoint or "") for row in rows], incomplete)


def waiting_tasks(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Return the ids of unfinished tasks."""
    from skate.util.state.common import StateResource

    rows = [row for row in _rows(ctx, StateResource.TASKS) if row.state not in ("FINISHED", "FAILED")]
    return _items([(row.task_id, row.name) for row in rows], incomplete)


def resource_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Return the ids of the rows of the table that the argument before names."""
    resource = ctx.params.get("resource")
    if resource is None:
        return []
    key = f"{resource.value.removesuffix('s')}_id"
    return _items([(str(row[key]), "") for row in _rows(ctx, resource)], incomplete)


def log_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Return the names of logs."""
    from skate.util.state import list_logs

    def names(_: Any) -> list[Candidate]:
        return [(name, "") for names in list_logs().values() for name in names]

    return _items(_ask(ctx, names), incomplete)


def _rows(ctx: click.Context, resource: Any) -> list[Any]:
    from skate.util.state._rows import rows

    return _ask(ctx, lambda engine: rows(engine, resource))


def _ask(ctx: click.Context, question: Callable[[Any], list[Any]]) -> list[Any]:
    """Ask the node; an empty list if there is none."""
    try:
        with nodes.observe(ctx.params.get("address") or "auto") as engine:
            return question(engine)
    except (RayError, OSError, ValueError, nodes.UnusableFolderError):
        return []


def _items(found: Iterable[Candidate], incomplete: str) -> Items:
    values = {value: about for value, about in found if value.startswith(incomplete)}
    return [
        CompletionItem(value, help=about or None)
        for value, about in list(values.items())[:_MOST]
        if _PLAIN.fullmatch(value)
    ]
