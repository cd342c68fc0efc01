"""`skate memory`, `timeline`, `stack`, `why`, `debug`: looking closer."""

from __future__ import annotations

import json
import time

import click

import skate
from skate._api import nodes
from skate.cli.output import (
    TABLE,
    address_option,
    counted,
    format_option,
    say,
    write_block,
    write_json,
    write_table,
)
from skate.cli.stacks import stack_of
from skate.util import rpdb, state
from skate.util.state.common import Humanify


@click.command()
@click.option("--limit", type=int, default=20, show_default=True, help="How many of the largest to show.")
@format_option
@address_option
def memory(limit: int, format_: str, address: str) -> None:
    """Show how full the memory for objects is, and the largest objects."""
    with nodes.observe(address):
        store = nodes.store()
        rows = state.list_objects(limit=10_000)
    rows.sort(key=lambda row: -row.object_size)
    if format_ != TABLE:
        write_json({**store, "largest": [row.asdict() for row in rows[:limit]]})
        return
    write_block(
        {
            "budget": Humanify.memory(store["budget"]),
            "used": Humanify.memory(store["used"]),
            "spilled": Humanify.memory(store["spilled_bytes"]),
            "restored": Humanify.memory(store["restored_bytes"]),
        }
    )
    if rows:
        click.echo()
        write_table(
            ["object_id", "size", "reference_type", "holder", "pid"],
            [
                (
                    row.object_id,
                    Humanify.memory(max(0, row.object_size)),
                    row.reference_type,
                    row.type,
                    row.pid,
                )
                for row in rows[:limit]
            ],
        )


@click.command()
@click.option(
    "-o", "--output", metavar="FILE", help="Where to write; - for standard output. Default: a new file here."
)
@address_option
def timeline(output: str | None, address: str) -> None:
    """Write what ran when, for chrome://tracing or ui.perfetto.dev."""
    with nodes.observe(address):
        events = skate.timeline() or []
    if output == "-":
        click.echo(json.dumps(events))
        return
    path = output or f"timeline-{time.strftime('%Y%m%d-%H%M%S')}.json"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(events, file)
    say(
        f"Wrote {counted(len(events), 'event')}; open the file in https://ui.perfetto.dev or chrome://tracing."
    )
    click.echo(path)


@click.command()
@click.option("--pid", type=int, help="Only this worker.")
@address_option
def stack(pid: int | None, address: str) -> None:
    """Show the Python stack of every worker.

    With py-spy installed it is asked, because it sees every thread without the worker's help. Without it the
    workers are asked to print their stacks, which appear in their logs too.
    """
    with nodes.observe(address):
        workers = state.list_workers(
            limit=10_000, filters=[("is_alive", "=", True), ("worker_type", "=", "WORKER")]
        )
        if pid is not None:
            workers = [row for row in workers if row.pid == pid]
            if not workers:
                raise click.ClickException(f"No worker has the pid {pid}. See `skate list workers`.")
        folder = skate.get_runtime_context().get_session_dir()
        running = {
            row.worker_pid: row.name for row in state.list_tasks(limit=10_000) if row.state == "RUNNING"
        }
        for row in workers:
            what = f" ({running[row.pid]})" if row.pid in running else ""
            click.echo(f"===== pid {row.pid}{what} =====")
            click.echo(stack_of(row.pid, int(row.worker_id, 16), folder).rstrip() + "\n")
    if not workers:
        say("No worker runs.")


@click.command()
@click.argument("id")
@address_option
def why(id: str, address: str) -> None:
    """Say what a task or an object waits for.

    ID is a task's or an object's: `skate list tasks` and `skate list objects` show them, and ref.hex() is
    one.
    """
    click.echo(state.why(id, address=address))


@click.command()
@click.argument("id", required=False)
@click.option(
    "--list", "only_list", is_flag=True, help="Show where workers have stopped, and attach to none."
)
@address_option
def debug(id: str | None, only_list: bool, address: str) -> None:
    """Attach this terminal to a worker that has stopped in the debugger.

    A worker stops at breakpoint() and waits, unless its driver has a terminal. ID names one of the stops;
    without it, you are attached to the only one, or asked which.
    """
    stops = rpdb.breakpoints(nodes.find(address, observer=True))
    if only_list:
        write_table(["id", "pid", "place", "function", "reason"], [_stop_row(stop) for stop in stops])
        return
    if id is not None:
        stops = [stop for stop in stops if stop.id == id]
    if not stops:
        name = f" with the id {id}" if id else ""
        raise click.ClickException(f"No worker waits for a debugger{name}. Call breakpoint() in a task.")
    rpdb.attach(stops[0] if len(stops) == 1 else _chosen(stops))


def _stop_row(stop: rpdb.Breakpoint) -> tuple[str, int, str, str, str]:
    return stop.id, stop.pid, f"{stop.file}:{stop.line}", stop.function, stop.reason


def _chosen(stops: list[rpdb.Breakpoint]) -> rpdb.Breakpoint:
    for number, stop in enumerate(stops, 1):
        say(f"{number}  {stop}")
    number = click.prompt("Attach to", type=click.IntRange(1, len(stops)), default=1, err=True)
    return stops[number - 1]
