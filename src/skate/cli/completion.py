"""`skate completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "skate"
VARIABLE = "_SKATE_COMPLETE"  # click looks for this one when `skate` runs


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Write a script that completes commands, options, and ids in a shell.

    For bash 4.4 or newer and zsh, add `eval "$(skate completion bash)"` or `eval "$(skate completion zsh)"` to
    ~/.bashrc or ~/.zshrc. For fish, write the script to ~/.config/fish/completions/skate.fish.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    program = click.get_current_context().find_root().command
    click.echo(kind(program, {}, PROGRAM, VARIABLE).source())
