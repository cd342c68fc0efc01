"""`skate logs`."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatch
from typing import Any, TypeVar

import click

from skate.cli import candidates
from skate.cli.output import address_option, say
from skate.util.state import get_log, list_logs

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_TAIL = 1000
# What `ray logs` selects logs by; the id, or the process id, is in an option.
_KINDS = {"actor": "actor_id", "task": "task_id", "job": "submission_id", "worker": "pid"}
_CLUSTER = "cluster"  # the word of `ray logs` before a name or a pattern
# Options of `ray logs` that have no meaning on one machine, or where both streams share a file.
_IGNORED_OPTIONS = ("--node-id", "--node-ip", "--interval", "--timeout", "--attempt-number")


def _options_of_ray(command: F) -> F:
    for name in _IGNORED_OPTIONS:
        command = click.option(name, hidden=True, expose_value=False, help="Ignored.")(command)
    command = click.option("--err", is_flag=True, hidden=True, expose_value=False, help="Ignored.")(command)
    command = click.option("--id", hidden=True, help="The id of the actor, task or job, as in `ray logs`.")(
        command
    )
    command = click.option("--encoding", default="utf-8", hidden=True, help="The encoding of the log.")(
        command
    )
    return click.option(
        "--encoding-errors", default="replace", hidden=True, help="How to decode what is not text."
    )(command)


@click.command()
@click.argument("words", metavar="[GLOB]", nargs=-1, shell_complete=candidates.log_names)
@click.option("--actor", "actor_id", metavar="ID", help="The log of this actor's process.")
@click.option("--task", "task_id", metavar="ID", help="The log of the worker that ran this task.")
@click.option("--pid", type=int, help="The log of this worker.")
@click.option("-f", "--follow", is_flag=True, help="Follow the log until Ctrl-C or the end of the session.")
@click.option("--tail", default=DEFAULT_TAIL, show_default=True, help="Last lines to start with; -1 for all.")
@_options_of_ray
@address_option
def logs(
    words: tuple[str, ...],
    actor_id: str | None,
    task_id: str | None,
    pid: int | None,
    follow: bool,
    tail: int,
    id: str | None,
    encoding: str,
    encoding_errors: str,
    address: str,
) -> None:
    """Show a log, or the names of all logs.

    GLOB is a name or a pattern, like `worker-3.log` or 'worker-*'. If it matches one log, the command shows
    that log; if it matches several, their names.
    """
    selected: dict[str, Any] = {"actor_id": actor_id, "task_id": task_id, "pid": pid}
    if words and words[0] in _KINDS and len(words) == 1:
        selected.update(_selected_as_ray(words[0], id, pid))
    elif not any(selected.values()):
        glob = _glob(words)
        names = [name for found in list_logs(address=address).values() for name in found]
        names = [name for name in names if fnmatch(name, glob or "*")]
        if glob and not names:
            raise click.ClickException(f"No log matches {glob!r}. `skate logs` shows the names of all logs.")
        if not glob or len(names) > 1:
            for name in names:
                click.echo(name)
            return
        selected["filename"] = names[0]
    text = get_log(
        address=address, follow=follow, tail=tail, encoding=encoding, errors=encoding_errors, **selected
    )
    try:
        empty = True
        for piece in text:
            empty = False
            click.echo(piece, nl=False)
        if empty:
            say("The log is empty.")
    except KeyboardInterrupt:
        return  # the regular end of `--follow`


def _glob(words: tuple[str, ...]) -> str | None:
    rest = words[1:] if words[:1] == (_CLUSTER,) else words
    if len(rest) > 1:
        raise click.UsageError(f"One name or pattern can be given, got {' '.join(rest)}.")
    return rest[0] if rest else None


def _selected_as_ray(kind: str, id: str | None, pid: int | None) -> dict[str, Any]:
    """Return which log is meant by `ray logs actor --id …`, or another kind and its id."""
    needs_pid = kind == "worker" or (kind == "actor" and id is None)
    value = pid if needs_pid else id
    if value is None:
        raise click.MissingParameter(param_type="option", param_hint="--pid" if needs_pid else "--id")
    return {"pid": value} if needs_pid else {_KINDS[kind]: value}
