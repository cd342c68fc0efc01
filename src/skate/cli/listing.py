"""`skate list`, `skate get` and `skate summary`: the tables of the state API."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from skate._base.suggestions import did_you_mean
from skate.cli import candidates
from skate.cli.output import (
    JSON,
    TABLE,
    YAML,
    address_option,
    counted,
    format_option,
    runs_as_ray,
    say,
    write_block,
    write_json,
    write_table,
    write_yaml,
)
from skate.util.state import StateApiClient
from skate.util.state.common import (
    DEFAULT_LIMIT,
    Filter,
    GetApiOptions,
    ListApiOptions,
    StateResource,
    SummaryApiOptions,
    SummaryResource,
)

F = TypeVar("F", bound=Callable[..., Any])

# The columns of tables; JSON and --detail show all columns.
_COLUMNS = {
    StateResource.ACTORS: ["actor_id", "class_name", "state", "name", "ray_namespace", "job_id", "pid"],
    StateResource.TASKS: [
        "task_id",
        "name",
        "state",
        "type",
        "job_id",
        "worker_pid",
        "attempt_number",
        "error_type",
    ],
    StateResource.OBJECTS: ["object_id", "object_size", "task_status", "reference_type", "type", "pid"],
    StateResource.NODES: ["node_id", "state", "resources_total", "labels"],
    StateResource.WORKERS: ["worker_id", "worker_type", "pid", "is_alive", "exit_type"],
    StateResource.JOBS: ["job_id", "submission_id", "type", "status", "entrypoint"],
    StateResource.PLACEMENT_GROUPS: ["placement_group_id", "name", "state", "creator_job_id"],
    StateResource.RUNTIME_ENVS: ["runtime_env", "success"],
}
_RULE = "-" * 30
_WITH_ID = [each for each in StateResource if each is not StateResource.RUNTIME_ENVS]


def _words(members: list[Any]) -> list[str]:
    return [member.value.replace("_", "-") for member in members]


def _resource_argument(members: list[Any]) -> Callable[[F], F]:
    """Add the argument that names a table: `placement-groups`, or `placement_groups`, or without its s."""
    words = _words(members)

    def member(ctx: click.Context, param: click.Parameter, value: str) -> Any:
        text = value.lower().replace("_", "-")
        for word, found in zip(words, members, strict=True):
            if text in (word, word.removesuffix("s")):
                return found
        hint = did_you_mean(text, words)
        raise click.BadParameter(f"{value!r} is not one of {', '.join(words)}.{hint}", ctx=ctx, param=param)

    return click.argument("resource", callback=member, shell_complete=candidates.one_of(words))


def _timeout_option(command: F) -> F:
    return click.option(
        "--timeout", type=float, hidden=True, expose_value=False, help="Accepted: the node answers at once."
    )(command)


def parse_filter(text: str) -> Filter:
    """Return a filter from `column=value` or `column!=value`.

    >>> parse_filter("state!=DEAD")
    ('state', '!=', 'DEAD')
    """
    column, equals, value = text.partition("=")
    operator = "!=" if column.endswith("!") else "="
    column = column.removesuffix("!").strip()
    if not equals or not column or not value:
        raise click.BadParameter(f"{text!r} is not a filter: write column=value or column!=value")
    return column, operator, value.strip()


@click.command("list")
@_resource_argument(list(StateResource))
@click.option("-f", "--filter", "filters", multiple=True, help="column=value or column!=value. Repeatable.")
@click.option(
    "--limit", type=int, default=DEFAULT_LIMIT, show_default=True, help="The number of rows to show."
)
@click.option("--detail", is_flag=True, help="Show all columns.")
@_timeout_option
@format_option
@address_option
def list_(
    resource: StateResource,
    filters: tuple[str, ...],
    limit: int,
    detail: bool,
    format_: str,
    address: str,
) -> None:
    """List the resources of a kind.

    RESOURCE is actors, jobs, nodes, objects, placement-groups, runtime-envs, tasks or workers. For example:
    skate list tasks --filter state=RUNNING
    """
    options = ListApiOptions(limit=limit, detail=detail, filters=[parse_filter(text) for text in filters])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows = StateApiClient(address).list(resource, options, False, True)
    for warning in caught:
        say(str(warning.message))
    if runs_as_ray() and format_ != JSON:
        _write_as_ray(rows, detail, format_)
    elif format_ != TABLE:
        write_json(_all_columns(rows, detail))
    elif detail:
        for number, row in enumerate(rows):
            if number:
                click.echo()
            write_block(type(row).humanify(row.asdict()))
    elif rows:
        shown = [type(row).humanify(row.asdict()) for row in rows]
        write_table(_COLUMNS[resource], [[row[name] for name in _COLUMNS[resource]] for row in shown])
    else:
        say(f"There are no {resource.value.replace('_', ' ')}{' that match' if filters else ''}.")


def _all_columns(rows: list[Any], detail: bool) -> list[dict[str, Any]]:
    return [{name: row[name] for name in row.list_columns(detail)} for row in rows]


def _write_as_ray(rows: list[Any], detail: bool, format_: str) -> None:
    """Write rows with the columns, headings and formats of `ray list`."""
    if not rows:
        click.echo("No resource in the cluster")
        return
    shown = [type(row).humanify(each) for row, each in zip(rows, _all_columns(rows, detail), strict=True)]
    is_given = click.get_current_context().get_parameter_source("format_") is not ParameterSource.DEFAULT
    if format_ == YAML or (detail and not is_given):
        write_yaml(shown)
        return
    click.echo(f"\n======== List: {datetime.now()} ========\nStats:\n{_RULE}\nTotal: {len(rows)}\n")
    click.echo(f"Table:\n{_RULE}")
    write_table(["", *shown[0]], [[number, *row.values()] for number, row in enumerate(shown)])


@click.command()
@_resource_argument(_WITH_ID)
@click.argument("id", shell_complete=candidates.resource_ids)
@_timeout_option
@format_option
@address_option
def get(resource: StateResource, id: str, format_: str, address: str) -> None:
    """Show one resource with all its columns.

    RESOURCE is actors, jobs, nodes, objects, placement-groups, tasks or workers.
    """
    found = StateApiClient(address).get(resource, id, GetApiOptions())
    rows = found if isinstance(found, list) else [found] if found is not None else []
    if not rows and runs_as_ray():
        click.echo(f"Resource with id={id} not found in the cluster.")
        return
    if not rows:
        name = resource.value.replace("_", "-")
        raise click.ClickException(f"Nothing among the {name} has the id {id}. See `skate list {name}`.")
    if format_ != TABLE:
        write_json([row.asdict() for row in rows] if isinstance(found, list) else rows[0].asdict())
        return
    for number, row in enumerate(rows):
        if number:
            click.echo()
        write_block(type(row).humanify(row.asdict()))


@click.command()
@_resource_argument(list(SummaryResource))
@_timeout_option
@format_option
@address_option
def summary(resource: SummaryResource, format_: str, address: str) -> None:
    """Count the resources of a kind by name and state.

    RESOURCE is actors, objects or tasks.
    """
    found = StateApiClient(address).summary(resource, options=SummaryApiOptions())["cluster"]
    if format_ != TABLE:
        write_json(found)
    elif resource is SummaryResource.OBJECTS:
        say(f"{counted(found['total_objects'], 'reference')}, {found['total_size_mb']:.3f} MiB")
        rows = [
            (site, each["total_objects"], f"{each['total_size_mb']:.3f}", each["task_state_counts"])
            for site, each in found["summary"].items()
        ]
        write_table(["call_site", "references", "size_mb", "states"], rows)
    else:
        write_table(
            ["name", "type" if resource is SummaryResource.TASKS else "class", "states"],
            [
                (name, each.get("type", each.get("class_name")), _counts(each["state_counts"]))
                for name, each in found["summary"].items()
            ],
        )


def _counts(states: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(states.items()))
