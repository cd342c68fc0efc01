"""`skate run`: an unchanged Ray program on Skate."""

from __future__ import annotations

import os

import click

from skate.cli import candidates
from skate.cli.script import Handover, Script

ENGINES = ("inline", "local", "ray")


class NoSuchFile(click.ClickException):
    """The script does not exist; `python` exits with the same status."""

    exit_code = 2


# All arguments after the script, including options, belong to the script.
@click.command(context_settings={"allow_interspersed_args": False})
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is the name of a module, as with `python -m`.")
@click.option(
    "--engine", type=click.Choice(ENGINES), help="The engine to run on. Default: SKATE_ENGINE, or local."
)
@click.option("--address", help="The node or cluster to use, like `auto` or `ray://host:10001`.")
@click.argument("script", shell_complete=candidates.files)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, shell_complete=candidates.files)
def run(
    script: str, arguments: tuple[str, ...], is_module: bool, engine: str | None, address: str | None
) -> None:
    """Run an unchanged Ray program on Skate.

    Works like `python SCRIPT ARGUMENTS`, except that `import ray` imports Skate, in SCRIPT and in all its
    workers, even if Ray is installed. SCRIPT may be a folder or a zip file with a `__main__.py`.
    """
    if not is_module and not os.path.exists(script):
        raise NoSuchFile(f"The file {script!r} does not exist.")
    for name, value in (("SKATE_ENGINE", engine), ("SKATE_ADDRESS", address)):
        if value is not None:
            os.environ[name] = value
    raise Handover(Script(script, arguments, is_module=is_module))
