"""`skate job submit`: the options of Ray's command."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

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
    assert "Only one of" in cli("job", "submit", *given, "--", "true", status=2).err


def test_memory_and_labels_of_the_command_are_requested(cli: Cli, node: nodes.NodeRecord) -> None:
    cli("job", "submit", "--entrypoint-memory", "1000", "--job-id", "small", "--", "true")
    assert "small" in cli("job", "list").out
    selector = '{"zone": "moon"}'
    done = cli("job", "submit", "--entrypoint-label-selector", selector, "--", "true", status=1)
    assert "moon" in done.err


def intercept(**given: Any) -> None:
    """Print the command instead of submitting it, as RAY_JOB_SUBMIT_HOOK may."""
    print("intercepted", *given["entrypoint"], given["metadata_json"], given["no_wait"])
    sys.exit(0)


def test_a_hook_gets_the_options_and_may_end_the_command(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_JOB_SUBMIT_HOOK", f"{__name__}.intercept")
    done = cli("job", "submit", "--metadata-json", '{"a": "b"}', "--no-wait", "--", "echo", "hello")
    assert done.out == "intercepted echo hello {'a': 'b'} True\n"
    monkeypatch.setenv("RAY_JOB_SUBMIT_HOOK", "nowhere.hook")
    done = cli("job", "submit", "--", "echo", "hello", status=1)
    assert "RAY_JOB_SUBMIT_HOOK is 'nowhere.hook'" in done.err


def test_jobs_have_an_address_of_their_own(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "ray://127.0.0.1:1")
    monkeypatch.delenv("SKATE_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:8265")
    assert cli("job", "submit", "--", "echo", "hello").out == "hello\n"
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "127.0.0.1:8265")
    assert "is not the address of a Skate node" in cli("job", "submit", "--", "echo", "hello", status=1).err


def test_a_url_without_a_server_is_an_error(cli: Cli) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    said = cli("job", "submit", "--address", url, "--", "echo", "hello", status=1).err
    assert f"{url} does not answer: " in said
    assert "`skate dashboard` serves jobs over HTTP" in said


@pytest.mark.parametrize("command", ["list", "status", "logs", "stop", "delete"])
def test_every_command_accepts_rays_options(cli: Cli, command: str) -> None:
    cli("job", "submit", "--verbose", "--submission-id", "one", "--", "true")
    given = () if command == "list" else ("one",)
    options = ("--headers", "{}", "--verify", "false", "--log-style", "record", "--log-color", "false", "-v")
    cli("job", command, *options, *given)


def test_a_job_is_stopped_with_rays_option(cli: Cli) -> None:
    cli("job", "submit", "--no-wait", "--job-id", "long", "--", "sleep", "1000")
    assert cli("job", "stop", "--no-wait", "long").err == "Stopping job 'long'.\n"


def test_headers_are_a_json_object(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_JOB_HEADERS", "{key value}")
    assert "'{key value}' is not JSON" in cli("job", "submit", "--", "true", status=2).err
