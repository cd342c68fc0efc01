"""`skate memory`, `timeline`, `stack`, `why` and `debug`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from typing import Any

import click

import skate
from skate._api import nodes
from skate.cli import candidates
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
from skate.util import rpdb, state
from skate.util.state.common import Humanify, ObjectState

_STACK_DUMP_TIMEOUT_S = 2.0
_STACK_DUMP_POLL_S = 0.05


@click.command()
@click.option("--limit", type=int, default=20, show_default=True, help="How many of the largest to show.")
@format_option
@address_option
def memory(limit: int, format_: str, address: str) -> None:
    """Show the usage of the object store, what each process holds of it, and the largest objects."""
    with nodes.observe(address):
        store = nodes.store()
        rows = state.list_objects(limit=10_000)
        by_process = state.memory(limit=1)["processes"] if nodes.is_local() else []
    rows.sort(key=lambda row: -row.object_size)
    by_process.sort(key=lambda row: -row["bytes"])
    if format_ != TABLE:
        write_json({**store, "processes": by_process, "largest": [row.asdict() for row in rows[:limit]]})
        return
    write_block(
        {
            "budget": Humanify.memory(store["budget"]),
            "used": Humanify.memory(store["used"]),
            "spilled": Humanify.memory(store["spilled_bytes"]),
            "restored": Humanify.memory(store["restored_bytes"]),
        }
    )
    if by_process:
        click.echo()
        _write_processes(by_process)
    if rows:
        click.echo()
        _write_objects(rows[:limit])


def _write_processes(rows: list[dict[str, Any]]) -> None:
    sizes = ("rss", "uss", "bytes", "mapped")
    write_table(
        ["pid", "process", "rss", "own", "objects", "referenced", "mapped"],
        [
            (row["pid"], row["title"], *shown[:2], row["objects"], *shown[2:])
            for row in rows
            for shown in [["-" if row[size] is None else Humanify.memory(row[size]) for size in sizes]]
        ],
    )


def _write_objects(rows: list[ObjectState]) -> None:
    has_sites = any(row.call_site != "disabled" for row in rows)
    write_table(
        ["object_id", "size", "reference_type", "holder", "pid", *(["created_at"] * has_sites)],
        [
            (
                row.object_id,
                Humanify.memory(max(0, row.object_size)),
                row.reference_type,
                row.type,
                row.pid,
                *([row.call_site] * has_sites),
            )
            for row in rows
        ],
    )


@click.command()
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="The file to write; - for standard output. Default: a new file in this folder.",
)
@address_option
def timeline(output: str | None, address: str) -> None:
    """Write a timeline of tasks for chrome://tracing or ui.perfetto.dev."""
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

    Uses py-spy if it is installed, which sees every thread without the worker's help. Otherwise the workers
    print their stacks, which also appear in their logs.
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
            click.echo(_stack_of(row.pid, int(row.worker_id, 16), folder).rstrip() + "\n")
    if not workers:
        say("No workers are running.")


def _stack_of(pid: int, worker: int, session: str) -> str:
    """Return the stacks of a worker's threads, or the reason why they are not available."""
    spy = shutil.which("py-spy")
    if spy is not None:
        done = subprocess.run([spy, "dump", "--pid", str(pid)], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout
    return _stack_from_log(pid, os.path.join(session, "logs", f"worker-{worker}.log"))


def _stack_from_log(pid: int, log: str) -> str:
    """Let the worker print its stacks, and read them from its log."""
    if not _handles_signal(pid, signal.SIGUSR1):
        return "This process does not show its stack; install py-spy to see it."
    before = _size(log)
    os.kill(pid, signal.SIGUSR1)
    deadline = time.monotonic() + _STACK_DUMP_TIMEOUT_S
    seen = before
    # The node copies the output to the log, and nothing marks its end: wait until the log stops growing.
    while time.monotonic() < deadline:
        time.sleep(_STACK_DUMP_POLL_S)
        size = _size(log)
        if size > before and size == seen:
            break
        seen = size
    if seen == before:
        return "This process did not show its stack: it may be stopped, or have closed its standard error."
    with open(log, encoding="utf-8", errors="replace") as file:
        file.seek(before)
        return file.read()


def _size(path: str) -> int:
    return os.stat(path).st_size if os.path.exists(path) else 0


def _handles_signal(pid: int, number: int) -> bool:
    """Return whether a process handles a signal, which would otherwise kill it."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            mask = next(line.split()[1] for line in file if line.startswith("SigCgt:"))
    except (FileNotFoundError, StopIteration):
        return False
    return bool(int(mask, 16) >> (number - 1) & 1)


@click.command()
@click.argument("id", shell_complete=candidates.waiting_tasks)
@address_option
def why(id: str, address: str) -> None:
    """Explain what a task or an object waits for.

    ID is the id of a task or an object: `skate list tasks` and `skate list objects` show them, and ref.hex()
    returns one.
    """
    click.echo(state.why(id, address=address))


@click.command()
@click.argument("id", required=False)
@click.option(
    "--list", "only_list", is_flag=True, help="List the breakpoints at which workers wait, without attaching."
)
@address_option
def debug(id: str | None, only_list: bool, address: str) -> None:
    """Attach this terminal to a worker that waits in the debugger.

    A worker waits at breakpoint() unless its driver has a terminal. ID selects a breakpoint; without it, the
    command attaches to the only one, or asks which.
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
    rpdb.attach(stops[0] if len(stops) == 1 else _choose(stops))


def _stop_row(stop: rpdb.Breakpoint) -> tuple[str, int, str, str, str]:
    return stop.id, stop.pid, f"{stop.file}:{stop.line}", stop.function, stop.reason


def _choose(stops: list[rpdb.Breakpoint]) -> rpdb.Breakpoint:
    for number, stop in enumerate(stops, 1):
        say(f"{number}  {stop}")
    number = click.prompt("Attach to", type=click.IntRange(1, len(stops)), default=1, err=True)
    return stops[number - 1]
