"""`skate dashboard`."""

from __future__ import annotations

import webbrowser

import click

from skate._api import dashboards
from skate.cli.output import address_option, say


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=dashboards.DEFAULT_PORT,
    show_default=True,
    help="The port to listen on; if it is taken, the next free one. 0 for any.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@address_option
def dashboard(host: str, port: int, opens: bool, address: str) -> None:
    """Show a node in the browser: tasks, actors, objects, logs, and the libraries.

    Prints the URL of the page, which contains a token, and runs until Ctrl-C. The page keeps working when the
    node is stopped and started again. The token is random, unless SKATE_DASHBOARD_TOKEN sets it.
    """
    try:
        dashboards.require_packages()
        dashboards.fixed_token()
    except (ImportError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    from skate.dashboard._process import run

    def ready(url: str, actual: int) -> None:
        if port not in (0, actual):
            say(f"Port {port} is taken: the dashboard listens on {actual}.")
        click.echo(url)
        say("Everybody who has this URL can use the node. Press Ctrl-C to end the dashboard.")
        if opens:
            webbrowser.open(url)

    try:
        run(address, host, port, ready)
    except ConnectionError:
        raise
    except OSError as error:
        raise click.ClickException(str(error)) from error
