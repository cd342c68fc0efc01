"""The applications of a command, and the start of Serve for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from skate.cli.output import say
from skate.cli.serve import files

if TYPE_CHECKING:
    from skate.serve._controller.client import Client
    from skate.serve.schema import ServeDeploySchema


def single_application(
    import_path: str, arguments: tuple[str, ...], env: dict[str, Any], name: str | None
) -> ServeDeploySchema:
    """Return a configuration with one application."""
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


def start_for(file: ServeDeploySchema, http: dict[str, Any] | None = None) -> Client:
    """Start Serve with the options of a configuration file if it does not run, and return its client.

    Args:
        file: The configuration.
        http: The HTTP options of the command line, which override those of the file.
    """
    from skate.serve._controller.client import connect, connect_or_start

    was_running = connect() is not None
    given = file.model_fields_set
    of_file = file.http_options.model_dump(exclude_unset=True) if "http_options" in given else {}
    wanted = {**of_file, **(http or {})}
    client = connect_or_start(
        file.proxy_location if "proxy_location" in given else None,
        wanted or None,
        file.grpc_options.model_dump(exclude_unset=True) if "grpc_options" in given else None,
        logging_config=file.logging_config,
        tracing_config=file.tracing_config,
    )
    if was_running and wanted:
        _warn_of_other_options(client, wanted)
    return client


def http_overrides(host: str | None, port: int | None) -> dict[str, Any] | None:
    """Return the HTTP options of a command line; None if there are none."""
    return {key: value for key, value in (("host", host), ("port", port)) if value is not None} or None


def _warn_of_other_options(client: Client, wanted: dict[str, Any]) -> None:
    """Report the HTTP options that have no effect because Serve runs already."""
    here = client.details().http_options
    found = {} if here is None else here.model_dump()
    other = sorted(name for name, value in wanted.items() if found.get(name) != value)
    if other:
        say(
            f"Serve runs already, so these options of HTTP have no effect: {', '.join(other)}. To use them, shut it "
            "down first: `skate serve shutdown`."
        )


def wait_until_running(client: Client, file: ServeDeploySchema) -> None:
    """Wait until all applications of a file run; raise an error if one does not."""
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
    """Print the HTTP address of Serve."""
    found = client.http_address()
    if found is None:
        say("Serve runs, without HTTP.")
    else:
        click.echo(f"http://{found[0]}:{found[1]}")
