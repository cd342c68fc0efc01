"""Every command has help, and the reference has the same text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from skate.cli import main
from skate.cli.reference import page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def commands(
    command: click.Command = main, words: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(words), command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from commands(child, (*words, name))


COMMANDS = dict(commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    command = COMMANDS[name]
    assert command.help, f"skate {name} has no help"
    assert command.help.splitlines()[0].endswith("."), "the first line is a sentence"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help(name: str) -> None:
    options = [param for param in COMMANDS[name].params if isinstance(param, click.Option)]
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_shown(name: str) -> None:
    for flag in ("--help", "-h"):
        done = CliRunner().invoke(main, [*name.split(), flag])
        assert done.exit_code == 0
        assert done.output.startswith("Usage: ")


def test_the_reference_is_what_the_commands_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


@pytest.mark.parametrize(
    "arguments", [["lst"], ["list"], ["list", "actorz"], ["list", "tasks", "--limit", "x"], ["why"]]
)
def test_a_wrong_command_line_ends_with_status_two(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert "Usage: " in done.output


def test_a_misspelled_table_is_corrected() -> None:
    assert "Did you mean 'actors'?" in CliRunner().invoke(main, ["list", "actorz"]).output
