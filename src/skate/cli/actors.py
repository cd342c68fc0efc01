"""`skate kill-actor`."""

from __future__ import annotations

import click

from skate._api import nodes
from skate._api.actor_lookup import ActorLookupError
from skate._api.observer import Observer
from skate.cli import candidates
from skate.cli.output import address_option, say


@click.command("kill-actor")
@click.argument("name_or_id", shell_complete=candidates.actors)
@click.option("--namespace", help="The namespace of the name. Default: any.")
@click.option(
    "--no-restart/--restart",
    default=True,
    show_default=True,
    help="Whether the actor stays dead, or may restart as its max_restarts allows.",
)
@address_option
def kill_actor(name_or_id: str, namespace: str | None, no_restart: bool, address: str) -> None:
    """Kill an actor, which ends its process at once.

    NAME_OR_ID is the name of the actor, or its id: `skate list actors` shows both. Writes the id.
    """
    with nodes.observe(address) as engine:
        observer = Observer(engine, lambda: None)
        try:
            row = observer.kill_actor(name_or_id, namespace=namespace, no_restart=no_restart)
        except ActorLookupError as error:
            raise click.ClickException(str(error)) from error
    click.echo(row["actor_id"].hex())
    say(f"Killed the actor {row['name'] or row['class_name']} (pid {row['pid']}).")
