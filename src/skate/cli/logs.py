"""`skate logs`."""

from __future__ import annotations

from fnmatch import fnmatch

import click

from skate.cli import candidates
from skate.cli.output import address_option, say
from skate.util.state import get_log, list_logs

DEFAULT_TAIL = 1000


@click.command()
@click.argument("glob", required=False, shell_complete=candidates.log_names)
@click.option("--actor", "actor_id", metavar="ID", help="The log of this actor's process.")
@click.option("--task", "task_id", metavar="ID", help="The log of the worker that ran this task.")
@click.option("--pid", type=int, help="The log of this worker.")
@click.option("-f", "--follow", is_flag=True, help="Follow the log until Ctrl-C or the end of the session.")
@click.option("--tail", default=DEFAULT_TAIL, show_default=True, help="Last lines to start with; -1 for all.")
@address_option
def logs(
    glob: str | None,
    actor_id: str | None,
    task_id: str | None,
    pid: int | None,
    follow: bool,
    tail: int,
    address: str,
) -> None:
    """Show a log, or the names of all logs.

    GLOB is a name or a pattern, like `worker-3.log` or 'worker-*'. If it matches one log, the command shows
    that log; if it matches several, their names.
    """
    if not (actor_id or task_id or pid):
        every = [name for names in list_logs(address=address).values() for name in names]
        names = [name for name in every if fnmatch(name, glob or "*")]
        if glob and not names:
            raise click.ClickException(f"No log matches {glob!r}. `skate logs` shows the names of all logs.")
        if not glob or len(names) > 1:
            for name in names:
                click.echo(name)
            return
        glob = names[0]
    text = get_log(
        address=address,
        filename=glob,
        actor_id=actor_id,
        task_id=task_id,
        pid=pid,
        follow=follow,
        tail=tail,
        errors="replace",
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
