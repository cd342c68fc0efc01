"""`skate job submit`: the options of Ray's command."""

from __future__ import annotations

from pathlib import Path

import pytest

from skate._api import nodes
from tests.plugins.command_line import Cli

pytestmark = pytest.mark.usefixtures("node")


def test_the_environment_comes_from_a_file(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "env.yaml"
    file.write_text("env_vars:\n  WORD: hello\n")
    done = cli("job", "submit", "--runtime-env", str(file), "--log-style", "record", "--", "echo", "$WORD")
    assert done.out == "$WORD\n"
    done = cli("job", "submit", "--runtime-env", str(file), "--", "echo $WORD")
    assert done.out == "hello\n"


@pytest.mark.parametrize(("text", "says"), [("a: [", "is not YAML"), ("- a", "is YAML, but not a mapping")])
def test_a_wrong_file_is_an_error(cli: Cli, tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "env.yaml"
    file.write_text(text)
    assert says in cli("job", "submit", "--runtime-env", str(file), "--", "true", status=2).err


def test_the_environment_is_given_once(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "env.yaml"
    file.write_text("{}")
    given = ("--runtime-env", str(file), "--runtime-env-json", "{}")
    assert "only one of" in cli("job", "submit", *given, "--", "true", status=2).err


def test_memory_and_labels_of_the_command_are_requested(cli: Cli, node: nodes.NodeRecord) -> None:
    cli("job", "submit", "--entrypoint-memory", "1000", "--job-id", "small", "--", "true")
    assert "small" in cli("job", "list").out
    selector = '{"zone": "moon"}'
    done = cli("job", "submit", "--entrypoint-label-selector", selector, "--", "true", status=1)
    assert "moon" in done.err
