"""The command line under the name of Ray's, `ray`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner, Result

import skate
from skate._api import nodes
from skate.scripts.scripts import cli as ray
from skate.util import state
from skate.util.state.state_cli import logs_state_cli_group, ray_get, ray_list, summary_state_cli_group
from tests.contract.support import eventually
from tests.plugins.command_line import Cli


def run(*arguments: str, status: int = 0, command: click.Command = ray) -> Result:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == status, result.output
    return result


@pytest.mark.usefixtures("node")
class TestJobs:
    def test_messages_go_to_standard_output(self) -> None:
        done = run("job", "submit", "--submission-id", "one", "--", "echo", "hello")
        assert done.stdout.splitlines() == [
            "Job 'one' submitted successfully",
            "Tailing logs until the job exits (disable with --no-wait):",
            "Running entrypoint for job one: echo hello",
            "hello",
            "Job 'one' succeeded",
        ]
        assert done.stderr == ""
        assert run("job", "delete", "one").stdout == "Job 'one' deleted successfully\n"

    def test_without_waiting_the_next_commands_are_named(self) -> None:
        done = run("job", "submit", "--no-wait", "--submission-id", "one", "--", "echo", "hello")
        assert "one" in done.stdout.splitlines()
        assert "`ray job status one`" in done.stdout

    def test_a_failure_ends_with_an_error(self) -> None:
        assert "Job 'one' failed" in run("job", "submit", "--job-id", "one", "--", "false", status=1).stdout
        assert "Job 'one' failed\nStatus message: " in run("job", "status", "one").stdout

    def test_a_job_is_stopped(self) -> None:
        run("job", "submit", "--no-wait", "--submission-id", "one", "--", "sleep", "1000")
        assert run("job", "status", "one").stdout.startswith("Job 'one' has the status ")
        done = run("job", "stop", "one")
        assert done.stdout.startswith("Waiting for job 'one' to exit")
        assert done.stdout.endswith("Job 'one' was stopped\n")
        assert run("job", "stop", "one").stdout == "Job 'one' had ended already.\n"

    def test_stopping_a_job_that_is_followed_is_no_error(self, cli: Cli) -> None:
        stop = f"{sys.executable} -m skate.cli job stop --no-wait one; sleep 1000"
        done = run("job", "submit", "--submission-id", "one", "--", "sh", "-c", stop)
        assert "Job 'one' was stopped" in done.stdout
        cli("job", "submit", "--submission-id", "two", "--", "sh", "-c", stop.replace("one", "two"), status=1)

    def test_lists_are_the_representations_of_jobs(self) -> None:
        assert run("job", "list").stdout == "[]\n"
        run("job", "submit", "--submission-id", "one", "--", "true")
        assert run("job", "list").stdout.startswith("[JobDetails(")
        assert json.loads(run("job", "list", "--format", "json").stdout)[0]["submission_id"] == "one"
        assert json.loads(run("job", "status", "one", "--format", "json").stdout)["status"] == "SUCCEEDED"

    def test_the_default_url_needs_no_dashboard_with_other_headers(self) -> None:
        address = ("--address", "http://127.0.0.1:8265")
        run("job", "submit", *address, "--headers", '{"key": "value"}', "--", "true")


@pytest.mark.usefixtures("cli")
def test_nodes_are_started_and_stopped() -> None:
    done = run("start", "--head", "--num-cpus", "1")
    assert [node.folder for node in nodes.nodes()] == [done.stdout.splitlines()[0]]
    assert "The node runs (pid " in done.stdout
    assert run("stop", "--force").stdout == "Stopped 1 node.\n"
    assert run("stop").stderr == ""


@skate.remote
class Talker:
    def say(self, text: str) -> int:
        print(text)
        return os.getpid()


class TestState:
    @pytest.fixture(autouse=True)
    def session(self, node: nodes.NodeRecord) -> Iterator[None]:
        skate.init(address="auto", log_to_driver=False)
        yield
        skate.shutdown()

    def test_lists_have_rays_headings_and_columns(self) -> None:
        assert run("list", "actors").stdout == "No resource in the cluster\n"
        actor = Talker.remote()
        skate.get(actor.say.remote("hello"))
        for done in (run("list", "actors"), run("actors", command=ray_list)):
            assert "\nTotal: 1\n" in done.stdout
            *_, header, row = done.stdout.splitlines()
            assert header.split() == [
                name.upper() for name in state.list_actors()[0].list_columns(detail=False)
            ]
            assert row.split()[:3] == ["0", actor._actor_id.hex(), "Talker"]

    def test_details_are_yaml_unless_another_format_is_given(self) -> None:
        skate.get(Talker.remote().say.remote("hello"))
        document = run("actors", "--detail", command=ray_list).stdout
        assert document.startswith("---\n")
        assert document.endswith("\n...\n")
        (row,) = json.loads(document.removeprefix("---").removesuffix("...\n"))
        assert row["class_name"] == "Talker"
        (row,) = json.loads(run("actors", "--detail", "--format=json", command=ray_list).stdout)
        assert "serialized_runtime_env" in row

    def test_an_unknown_id_is_no_error(self) -> None:
        said = "Resource with id=00 not found in the cluster.\n"
        assert run("get", "actors", "00").stdout == said
        assert run("actors", "00", "--timeout", "3", command=ray_get).stdout == said

    def test_summaries_count_rows(self) -> None:
        skate.get(Talker.remote().say.remote("hello"))
        assert "Talker" in run("actors", "--timeout", "3", command=summary_state_cli_group).stdout

    def test_logs_are_selected_by_kind_and_id(self) -> None:
        actor = Talker.remote()
        ref = actor.say.remote("hello")
        pid = str(skate.get(ref))
        eventually(lambda: run("logs", "actor", "--id", actor._actor_id.hex()).stdout == "hello\n")
        run("job", "submit", "--submission-id", "one", "--", "echo", "bye")
        for words, text in (
            (("actor", "--pid", pid), "hello\n"),
            (("worker", "--pid", pid, "--err"), "hello\n"),
            (("task", "--id", ref.task_id().hex()), "hello\n"),
            (("job", "--id", "one"), "bye\n"),
            (("cluster", "job-driver-*"), "bye\n"),
        ):
            assert run(*words, command=logs_state_cli_group).stdout == text
        assert "--id" in run("logs", "task", status=2).stderr
        assert "One name or pattern" in run("logs", "cluster", "a", "b", status=2).stderr

    def test_logs_of_another_encoding_are_decoded(self) -> None:
        with open(
            os.path.join(skate.get_runtime_context().get_session_dir(), "logs", "any.bin"), "wb"
        ) as file:
            file.write(bytes(range(256)))
        options = ("--encoding", "iso-8859-1", "--tail", "-1")
        done = CliRunner().invoke(logs_state_cli_group, ["any.bin", *options])
        assert done.stdout_bytes.decode() == bytes(range(256)).decode("iso-8859-1")
        assert b"".join(state.get_log(filename="any.bin", encoding=None)) == bytes(range(256))  # type: ignore[misc, arg-type]  # bytes, as in Ray


def test_an_installed_command_of_ray_is_this_one(cli: Cli) -> None:
    for module, name in (("scripts", "main"), ("tune.cli.scripts", "cli"), ("serve.scripts", "cli")):
        code = f"import skate.as_ray\nfrom ray.{module} import {name}\n{name}(['--help'])"
        assert "Usage: " in cli.program(code.replace("ray.scripts", "ray.scripts.scripts")).out
