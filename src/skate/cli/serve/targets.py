"""Configurations to deploy, and the connection to the Serve instance that runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from skate.cli.output import say
from skate.cli.serve import files

if TYPE_CHECKING:
    from skate.serve._controller.client import Client
    from skate.serve.schema import ServeDeploySchema


def config_for_import_path(
    import_path: str, arguments: tuple[str, ...], env: dict[str, Any], name: str | None
) -> ServeDeploySchema:
    """Return the configuration of a single application at an import path."""
    from pydantic import ValidationError

    from skate.serve.schema import ServeDeploySchema

    app: dict[str, Any] = {"import_path": import_path, "args": files.pairs(arguments), "runtime_env": env}
    try:
        return ServeDeploySchema.model_validate(
            {"applications": [app if name is None else {"name": name, **app}]}
        )
    except ValidationError as error:
        problem = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise click.ClickException(problem) from None


def start_for_config(file: ServeDeploySchema, http: dict[str, Any] | None = None) -> Client:
    """Return the client of Serve; start Serve with the options of a configuration if necessary.

    Args:
        file: The configuration.
        http: HTTP options from the command line, which override those of the configuration.
    """
    from skate.serve._controller.client import connect_for_config

    client, ignored = connect_for_config(file, http)
    if ignored:
        say(
            f"Serve is already running, so these HTTP options have no effect: {', '.join(ignored)}. To apply them, run "
            "`skate serve shutdown` first."
        )
    return client


def http_arguments(host: str | None, port: int | None) -> dict[str, Any] | None:
    """Return the HTTP options given on the command line, or None."""
    return {key: value for key, value in (("host", host), ("port", port)) if value is not None} or None


def wait_until_running(client: Client, file: ServeDeploySchema) -> None:
    """Wait until all applications of a configuration run; raise if one fails."""
    names = [app.name for app in file.applications]
    problems = [
        f"Application {name!r} does not run. {problem}"
        for name in names
        if (problem := client.wait(name)) is not None
    ]
    if problems:
        raise click.ClickException("\n".join(problems))
    say(f"Running: {', '.join(names) or 'nothing'}.")


def write_address(client: Client) -> None:
    """Print the HTTP address."""
    found = client.http_address()
    if found is None:
        say("Serve runs. It accepts no external requests.")
    else:
        click.echo(f"http://{found[0]}:{found[1]}")
