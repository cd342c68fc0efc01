"""Shell completion: `skate completion`, and the candidates from the node."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

import skate
from skate._api import nodes
from skate.cli import main
from tests.plugins.command_line import PROGRAM_TIMEOUT_S, Cli

PROGRAM = f"#!{sys.executable}\nfrom skate.cli import main\nmain()\n"
LINE = """
eval "$(skate completion bash)"
complete -p skate
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_skate_completion skate
printf '%s\\n' "${COMPREPLY[@]}"
"""
HEAVY = {"numpy", "pandas", "pyarrow", "ray", "starlette", "torch", "uvicorn"}


@skate.remote(num_cpus=0)
class Store:
    def ready(self) -> None: ...


@pytest.fixture
def bash(tmp_path: Path) -> Callable[..., list[str]]:
    """Completes the last of some words in a bash that has the script."""
    program = tmp_path / "bin" / "skate"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)

    def complete(*words: str) -> list[str]:
        done = subprocess.run(
            ["bash", "--norc", "-c", LINE, "bash", "skate", *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=PROGRAM_TIMEOUT_S,
            env={**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"},
        )
        registered, *found = done.stdout.split("\n")[:-1]
        assert registered.endswith("-F _skate_completion skate")
        return [each for each in found if each]

    return complete


def candidates(*words: str) -> list[tuple[str, str]]:
    """Return the types and values of the candidates for the last word."""
    *before, incomplete = words
    complete = ShellComplete(main, {}, "skate", "_SKATE_COMPLETE")
    return [(item.type, item.value) for item in complete.get_completions(before, incomplete)]


def values(*words: str) -> list[str]:
    return [value for _, value in candidates(*words)]


def test_bash_completes_commands_options_and_names(
    cli: Cli, node: nodes.NodeRecord, bash: Callable[..., list[str]]
) -> None:
    assert bash("micro") == ["microbenchmark"]
    assert bash("metrics", "--for") == ["--format"]
    assert bash("metrics", "--format", "") == ["text", "json", "table"]
    skate.init(address="auto", log_to_driver=False)
    actors = [Store.options(name=name).remote() for name in ("storage", "store", "other")]
    skate.get([actor.ready.remote() for actor in actors])
    assert sorted(bash("kill-actor", "st")) == ["storage", "store"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_their_script(cli: Cli, shell: str) -> None:
    text = cli("completion", shell).out
    assert f"_SKATE_COMPLETE={shell}_complete" in text


def test_an_unknown_shell_is_refused(cli: Cli) -> None:
    assert "'bash', 'zsh', 'fish'" in cli("completion", "csh", status=2).err


def test_tables_and_their_ids_are_completed(cli: Cli) -> None:
    skate.init(num_cpus=1, log_to_driver=False)
    actor = Store.remote()
    skate.get(actor.ready.remote())
    id = actor._actor_id.hex()
    assert values("list", "t") == ["tasks"]
    assert values("get", "actors", "") == [id]
    assert values("get", "placement-groups", "") == []
    assert values("kill-actor", id[:5]) == [id]
    assert values("why", "") == []
    assert "node.log" in values("logs", "n")
    folder = skate.get_runtime_context().get_session_dir()
    assert values("status", "--address", "") == ["auto", folder]


def test_a_name_that_the_shell_would_change_is_left_out(cli: Cli) -> None:
    skate.init(num_cpus=1, log_to_driver=False)
    actors = [Store.options(name=name).remote() for name in ("a b", "a*", "$(a)", "a,b", "a-b.c:d")]
    skate.get([actor.ready.remote() for actor in actors])
    assert values("kill-actor", "") == ["a-b.c:d"]


def test_scripts_are_completed_by_the_shell() -> None:
    assert candidates("run", "wo") == [("file", "wo")]
    assert candidates("run", "work.py", "da") == [("file", "da")]


@pytest.mark.parametrize(
    "words", [("kill-actor", ""), ("get", "tasks", ""), ("logs", ""), ("job", "stop", "")]
)
def test_without_a_node_there_are_no_ids(cli: Cli, words: tuple[str, ...]) -> None:
    assert values(*words) == []


def test_completion_imports_nothing_heavy(cli: Cli, node: nodes.NodeRecord) -> None:
    program = "from skate.cli import main; main(prog_name='skate')"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=PROGRAM_TIMEOUT_S,
        env={
            **os.environ,
            "_SKATE_COMPLETE": "bash_complete",
            "COMP_WORDS": "skate get nodes ",
            "COMP_CWORD": "3",
        },
    )
    assert done.stdout.startswith("plain,")
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "skate.cli.candidates" in imported
    assert imported & HEAVY == set()
