"""Options that several commands of `skate serve` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

ADDRESSES = ["SKATE_ADDRESS", "RAY_ADDRESS", "RAY_DASHBOARD_ADDRESS"]


def address_option(command: F) -> F:
    """Add `--address`."""
    return click.option(
        "-a",
        "--address",
        envvar=ADDRESSES,
        default="auto",
        show_default=True,
        help="The node to connect to: `auto`, or a session's folder; to deploy, to show the status or "
        "configuration, and to shut down, also the URL of a dashboard with its token.",
    )(command)


def app_dir_option(command: F) -> F:
    """Add `--app-dir`."""
    return click.option(
        "-d",
        "--app-dir",
        default=".",
        show_default=True,
        type=click.Path(exists=True, file_okay=False),
        help="A folder to import modules from, besides installed ones.",
    )(command)


def http_options(command: F) -> F:
    """Add the options of the HTTP listener, which apply if Serve does not run yet."""
    host = click.option(
        "--http-host", help="Address to listen on. Default: 127.0.0.1, for local clients only."
    )
    port = click.option(
        "--http-port", type=int, help="Port to listen on; 0 chooses a free one. Default: 8000."
    )
    return host(port(command))


def environment_options(command: F) -> F:
    """Add the options of an application's runtime environment."""
    for option in (
        click.option(
            "--working-dir", help="The folder to copy and to run in, or the URL of a zip file of it."
        ),
        click.option(
            "--runtime-env-json", metavar="JSON", help="The runtime environment of the application."
        ),
        click.option("--runtime-env", metavar="FILE", help="The runtime environment, as a YAML file."),
    ):
        command = option(command)
    return command
