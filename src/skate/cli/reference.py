"""Writes the reference of the command line: `python -m skate.cli.reference docs/reference/cli.md`."""

from __future__ import annotations

from pathlib import Path

import click

WIDTH = 90


def page() -> str:
    """Return the page: the `--help` text of each command."""
    from skate.cli.program import main

    parts = ["# The command line\n\n<!-- written by skate.cli.reference: run `make docs` -->\n"]

    def describe(command: click.Command, words: list[str]) -> None:
        context = click.Context(
            command, info_name=" ".join(words), terminal_width=WIDTH, **main.context_settings
        )
        parts.append(f"## `{' '.join(words)}`\n\n```text\n{command.get_help(context).rstrip()}\n```\n")
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                if child is not None and not child.hidden:
                    describe(child, [*words, name])

    describe(main, ["skate"])
    return "\n".join(parts)


@click.command()
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
def write(path: Path) -> None:
    """Write the page to PATH."""
    path.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write()
