"""`skate start`, `skate stop`, `skate status`."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from typing import Any

import click

import skate
from skate._api import nodes
from skate.cli.arguments import yaml_mapping
from skate.cli.output import address_option, counted, say, tell, write_block, write_table
from skate.util import state

# Options of `ray start` that have no meaning on one machine without ports; accepted, so that scripts run.
_IGNORED_OPTIONS = (
    "--port",
    "--node-ip-address",
    "--dashboard-host",
    "--dashboard-port",
    "--include-dashboard",
    "--ray-client-server-port",
    "--min-worker-port",
    "--max-worker-port",
    "--temp-dir",
    "--node-name",
)


def _pairs(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, Any] | None:
    """Read a JSON object, or `key=value,key=value`."""
    if value is None:
        return None
    text = value.strip()
    if not text.startswith("{"):
        pairs = [pair.partition("=") for pair in text.split(",") if pair]
        if pairs and all(equals for _, equals, _ in pairs):
            return {key.strip(): _number_or_text(word.strip()) for key, _, word in pairs}
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise click.BadParameter(
            f"{text!r} is neither JSON ({error}) nor key=value pairs", ctx=ctx, param=param
        ) from error
    if not isinstance(found, dict):
        raise click.BadParameter(f"{text!r} is JSON, but not an object", ctx=ctx, param=param)
    return found


def _number_or_text(word: str) -> float | str:
    try:
        return float(word)
    except ValueError:
        return word


def _ignored_options(command: Any) -> Any:
    for name in reversed(_IGNORED_OPTIONS):
        command = click.option(
            name, hidden=True, expose_value=False, callback=_note_ignored, help="Ignored."
        )(command)
    return command


def _note_ignored(_: click.Context, param: click.Parameter, value: Any) -> None:
    if value is not None and "dashboard" in param.opts[0]:
        say(f"{param.opts[0]} is ignored: run `skate dashboard` for a dashboard of the node.")
    elif value is not None:
        say(f"{param.opts[0]} is ignored: a Skate node opens no port and is the only one.")


@click.command()
@click.option("--head", is_flag=True, hidden=True, expose_value=False, help="Accepted: every node is a head.")
@click.option("--num-cpus", type=float, help="CPUs to schedule. Default: those that this process may use.")
@click.option("--num-gpus", type=float, help="GPUs to schedule. Default: the detected ones.")
@click.option("--resources", callback=_pairs, help="""Custom resources, like '{"disk": 2}' or disk=2.""")
@click.option("--labels", callback=_pairs, help="Labels of the node, like zone=a,tier=b or as JSON.")
@click.option(
    "--labels-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="A YAML file with labels of the node; --labels takes precedence.",
)
@click.option("--memory", type=float, help="Bytes of memory that tasks may request. Default: all memory.")
@click.option("--object-store-memory", type=int, help="Bytes of shared memory for objects.")
@click.option(
    "--preload", multiple=True, metavar="MODULE", help="Import this once for all workers. Repeatable."
)
@click.option(
    "--tracing-startup-hook",
    metavar="MODULE:FUNCTION",
    help="Call this in every program and worker of the node, and create OpenTelemetry spans.",
)
@click.option("--block", is_flag=True, help="Stay in the foreground; Ctrl-C stops the node.")
@click.option("--address", help="Not supported: a node cannot join other nodes.")
@click.option(
    "--disable-usage-stats",
    is_flag=True,
    hidden=True,
    expose_value=False,
    help="Ignored: Skate collects no statistics.",
)
@_ignored_options
def start(
    num_cpus: float | None,
    num_gpus: float | None,
    resources: dict[str, float] | None,
    labels: dict[str, Any] | None,
    labels_file: str | None,
    memory: float | None,
    object_store_memory: int | None,
    preload: tuple[str, ...],
    tracing_startup_hook: str | None,
    block: bool,
    address: str | None,
) -> None:
    """Start a node that outlives this command.

    Programs attach with skate.init(address="auto"), or unchanged with SKATE_ADDRESS=auto. Prints the folder
    of the session, which is also its address.
    """
    if address:
        raise click.UsageError(
            "A Skate node cannot join other nodes; to use a Ray cluster, call skate.init('ray://…')."
        )
    every = {**yaml_mapping("--labels-file", labels_file), **(labels or {})}
    try:
        node = nodes.start(
            num_cpus=num_cpus,
            num_gpus=num_gpus,
            resources=resources,
            labels={key: cell_text(value) for key, value in every.items()},
            memory=memory,
            object_store_memory=object_store_memory,
            preload=list(preload),
            tracing_startup_hook=tracing_startup_hook,
        )
    except (ImportError, RuntimeError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(node.folder)
    tell(
        f'The node runs (pid {node.pid}). Attach with skate.init(address="auto"); stop it with `skate stop`.'
    )
    if block:
        _block(node)


def cell_text(value: Any) -> str:
    """Return a label's value as the user typed it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _block(node: nodes.NodeRecord) -> None:
    """Wait until the node ends or this process gets a signal; then end the node."""
    done = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: done.set())

    def watch() -> None:
        nodes.wait(node)
        done.set()

    threading.Thread(target=watch, daemon=True).start()
    done.wait()
    nodes.end(node)


@click.command()
@click.option("-f", "--force", is_flag=True, help="Kill the node without waiting.")
@click.option(
    "-g",
    "--grace-period",
    type=click.FloatRange(min=0),
    default=nodes.GRACE_SECONDS,
    show_default=True,
    help="Seconds to wait for a node to end before it is killed.",
)
@click.option("--all", "everything", is_flag=True, help="Stop the nodes of running programs too.")
def stop(force: bool, grace_period: float, everything: bool) -> None:
    """Stop the node, its workers and its actors.

    Returns when all processes, shared memory and folders are gone.
    """
    stopped = nodes.stop(force=force, grace=grace_period, private=everything)
    tell(f"Stopped {counted(len(stopped), 'node')}." if stopped else "No node was running.")


@click.command()
@click.option("-v", "--verbose", is_flag=True, help="Show each worker and its activity.")
@address_option
def status(verbose: bool, address: str) -> None:
    """Show the node: its programs, actors, tasks and resources."""
    with nodes.observe(address):
        folder = skate.get_runtime_context().get_session_dir()
        record = next(node for node in nodes.nodes() if node.folder == folder)
        tasks = Counter(row.state for row in state.list_tasks(limit=10_000))
        actors = Counter(row.state for row in state.list_actors(limit=10_000))
        jobs = [row for row in state.list_jobs(limit=10_000, detail=True) if row.status == "RUNNING"]
        write_block(
            {
                "node": f"{record.process}, {'private' if record.private else 'long-lived'}, {folder}",
                "since": state.common.Humanify.timestamp(record.started * 1000).partition(".")[0],
                "programs": ", ".join(f"{job.entrypoint} (job {job.job_id})" for job in jobs),
                "actors": _counts(actors),
                "tasks": _counts(tasks),
            }
        )
        click.echo()
        write_table(["resource", "used", "total"], _usage())
        if verbose:
            click.echo()
            _write_workers()


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counter.items()))


def _usage() -> list[tuple[str, str, str]]:
    total, free = skate.cluster_resources(), skate.available_resources()
    store = nodes.store()
    rows = []
    for name in sorted(total):
        if name.startswith("node:"):
            continue
        used = float(store["used"]) if name == "object_store_memory" else total[name] - free.get(name, 0.0)
        rows.append((name, _amount(name, used), _amount(name, total[name])))
    return rows


def _amount(name: str, value: float) -> str:
    return state.common.Humanify.memory(int(value)) if "memory" in name else f"{value:g}"


def _write_workers() -> None:
    running = {row.worker_pid: row.name for row in state.list_tasks(limit=10_000) if row.state == "RUNNING"}
    actors = {
        row.pid: f"{row.class_name} (actor)"
        for row in state.list_actors(limit=10_000)
        if row.state == "ALIVE"
    }
    write_table(
        ["pid", "type", "does"],
        [
            (row.pid, row.worker_type, running.get(row.pid) or actors.get(row.pid))
            for row in state.list_workers(limit=10_000, filters=[("is_alive", "=", True)])
        ],
    )
