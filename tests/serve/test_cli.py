"""`skate serve`, mostly as processes of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import httpx
import pytest
import yaml

from skate import as_ray
from skate._api import nodes
from skate.serve.schema import ControllerHealthMetrics, ServeDeploySchema
from tests.contract.support import eventually
from tests.plugins.command_line import PROGRAM_TIMEOUT_S, Cli

PROGRAM = """
import os
from {library} import serve

@serve.deployment(ray_actor_options={{"num_cpus": 0.1}})
class Says:
    def __init__(self, what):
        if what == "broken":
            raise RuntimeError("cannot say anything")
        self.what = what

    def __call__(self):
        return f"{{self.what}} {{os.environ.get('SAID', '')}}".strip()

@serve.deployment(ray_actor_options={{"num_cpus": 0.1}}, user_config={{"k": 1}})
class Front:
    def __init__(self, other):
        self.other = other

    def reconfigure(self, config):
        pass

    async def __call__(self):
        return "front of " + await self.other.remote()

app = Says.bind("{word}")
both = Front.bind(Says.bind("{word}"))
broken = Says.bind("broken")
unbound = Says

def build(args):
    return Says.bind(args.get("what", "nothing"))
"""


class Program:
    """A module of a name of its own, in the folder that commands are run in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = f"program_{os.urandom(4).hex()}"
        self.write()

    def write(self, word: str = "hello", library: str = "skate") -> None:
        (self.folder / f"{self.name}.py").write_text(PROGRAM.format(word=word, library=library))

    def config(self, *apps: dict[str, Any], **top: Any) -> str:
        """Write a configuration file; return its name."""
        listed = [{"import_path": f"{self.name}:app", **each} for each in apps]
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump({**top, "applications": listed}))
        return str(path)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    monkeypatch.chdir(tmp_path)
    return Program(tmp_path)


@pytest.fixture
def url(cli: Cli, node: nodes.NodeRecord, program: Program) -> str:
    """Where Serve takes requests on a long-lived node."""
    return cli.process("serve", "start", "--http-port", "0").out.strip()


@pytest.fixture
def plain_ray() -> Iterator[None]:
    """Let `import ray` mean afterwards what it meant before, for commands that are run in this process."""
    before = as_ray.installed()
    yield
    if not before:
        as_ray.uninstall()


def status(cli: Cli) -> Any:
    return yaml.safe_load(cli.process("serve", "status").out)


def wait_for(cli: Cli, state: str, app: str = "default") -> Any:
    """Wait until an application has this status; return all that is told of it."""
    found: dict[str, Any] = {}

    def has_it() -> bool:
        found.update(status(cli)["applications"].get(app, {}))
        return found.get("status") == state

    eventually(has_it, f"{app} is {state}: {found}")
    return found


@contextmanager
def running(*arguments: str, **environment: str) -> Iterator[Callable[[str], str]]:
    """Run `skate serve run` until the block ends, and then as Ctrl-C does; yield what waits for a line of it."""
    command = [sys.executable, "-m", "skate.cli", "serve", "run", *arguments]
    env = {**os.environ, **environment}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    ) as process:
        assert process.stdout is not None
        seen: list[str] = []

        def line_with(words: str) -> str:
            for line in process.stdout or ():
                seen.append(line)
                if match := re.search(words, line):
                    return match[1] if match.groups() else match[0]
            raise AssertionError(f"{words!r} is not in:\n{''.join(seen)}")

        try:
            yield line_with
        finally:
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=PROGRAM_TIMEOUT_S)
        assert process.returncode == 0, "".join(seen) + rest


def test_a_file_is_deployed_looked_at_and_shut_down(cli: Cli, url: str, program: Program) -> None:
    config = {"name": "a", "route_prefix": "/a", "deployments": [{"name": "Says", "num_replicas": 2}]}
    path = program.config(config, {"name": "b", "route_prefix": "/b", "import_path": f"{program.name}:both"})
    assert cli.process("serve", "deploy", path).out == "Sent deploy request successfully.\n"
    documents = list(yaml.safe_load_all(cli.process("serve", "config").out))
    assert documents == yaml.safe_load(Path(path).read_text())["applications"]
    found = wait_for(cli, "RUNNING", "a")
    wait_for(cli, "RUNNING", "b")
    assert found["deployments"]["Says"]["replica_states"] == {"RUNNING": 2}
    assert [httpx.get(f"{url}/{name}").text for name in "ab"] == ["hello", "front of hello"]
    assert yaml.safe_load(cli("serve", "status", "--name", "a").out)["status"] == "RUNNING"
    assert yaml.safe_load(cli("serve", "config", "--name", "b").out) == documents[1]
    assert "shut down" in cli.process("serve", "shutdown", "-y").err
    assert status(cli) == {"proxies": {}, "applications": {}, "target_capacity": None}
    assert cli("serve", "config").out == "No configuration was found.\n"
    assert "No Serve instance found running" in cli("serve", "shutdown", "-y").err


def test_an_import_path_is_deployed_with_arguments(cli: Cli, url: str, program: Program) -> None:
    target = f"{program.name}:build"
    cli.process("serve", "deploy", target)
    wait_for(cli, "RUNNING")
    assert httpx.get(url).text == "nothing"
    cli.process(
        "serve", "deploy", target, "what=much", "--runtime-env-json", '{"env_vars": {"SAID": "more"}}'
    )
    eventually(lambda: httpx.get(url).text == "much more")


def test_what_fails_is_deployed_and_then_told(cli: Cli, url: str, program: Program) -> None:
    cli.process("serve", "deploy", f"{program.name}:broken", "--name", "mine")
    found = wait_for(cli, "DEPLOY_FAILED", "mine")
    assert "cannot say anything" in found["message"]
    assert found["deployments"]["Says"]["status_trigger"] == "REPLICA_STARTUP_FAILED"
    cli.process("serve", "deploy", f"{program.name}:missing", "--name", "mine")
    eventually(lambda: "has no 'missing'" in status(cli)["applications"]["mine"]["message"])


def test_the_folder_of_whoever_deploys_counts(cli: Cli, url: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    other = Program(tmp_path / "elsewhere")
    cli.process("serve", "deploy", f"{other.name}:app", "--app-dir", "elsewhere")
    wait_for(cli, "RUNNING")
    assert httpx.get(url).text == "hello"


def test_a_program_for_ray_serve_is_deployed_as_it_is(cli: Cli, url: str, program: Program) -> None:
    program.write(library="ray")
    cli.process("serve", "shutdown", "-y")
    cli.process("serve", "deploy", program.config({}, http_options={"port": 0}))
    found = wait_for(cli, "RUNNING")
    assert found["deployments"]["Says"]["status"] == "HEALTHY"


def test_a_program_for_ray_serve_is_deployed_to_serve_that_was_started_before(
    cli: Cli,
    url: str,
    program: Program,
) -> None:
    program.write(library="ray")
    cli.process("serve", "deploy", program.config({}), "--wait")
    assert httpx.get(url).text == "hello"


def test_the_controller_says_how_it_does(cli: Cli, url: str) -> None:
    shown = yaml.safe_load(cli.process("serve", "controller-health").out)
    read = json.loads(cli.process("serve", "controller-health", "--json").out)
    assert shown.keys() == read.keys() == ControllerHealthMetrics.model_fields.keys()
    assert (
        0
        < shown["controller_start_time"]
        == read["controller_start_time"]
        < shown["timestamp"]
        < read["timestamp"]
    )
    assert read["loop_duration_s"]["mean"] > 0


def test_the_health_of_no_controller_is_an_error(cli: Cli, node: nodes.NodeRecord) -> None:
    assert "No Serve instance is running" in cli.process("serve", "controller-health", status=1).err


def test_options_that_come_too_late_are_named(cli: Cli, url: str, program: Program) -> None:
    done = cli.process("serve", "deploy", program.config({}, http_options={"port": 1, "host": "127.0.0.1"}))
    assert "no effect: port." in done.err


def test_what_was_built_can_be_deployed(cli: Cli, program: Program) -> None:
    done = cli.process("serve", "build", f"{program.name}:app", f"{program.name}:both", "-o", "built.yaml")
    assert done.out == ""
    built = yaml.safe_load(Path("built.yaml").read_text())
    ServeDeploySchema.model_validate(built)
    assert [app["route_prefix"] for app in built["applications"]] == ["/app1", "/app2"]
    says = {"name": "Says", "ray_actor_options": {"num_cpus": 0.1}}
    assert built["applications"][0]["deployments"] == [says]
    assert built["applications"][1]["deployments"] == [
        says,
        {"name": "Front", "user_config": {"k": 1}, "ray_actor_options": {"num_cpus": 0.1}},
    ]
    assert (
        yaml.safe_load(cli.process("serve", "build", f"{program.name}:app").out)["applications"][0][
            "route_prefix"
        ]
        == "/"
    )


def test_an_application_runs_until_ctrl_c(cli: Cli, program: Program) -> None:
    with running(f"{program.name}:build", "what=it", "--name", "mine", "--http-port", "0") as line_with:
        address = line_with(r"'mine' runs at (http\S+)")
        assert httpx.get(address).text == "it"
        assert status(cli)["applications"]["mine"]["status"] == "RUNNING"
    assert nodes.nodes() == []
    with pytest.raises(httpx.HTTPError):
        httpx.get(address)


def test_a_file_runs_with_what_the_command_line_adds(cli: Cli, program: Program) -> None:
    path = program.config({"route_prefix": "/x"}, {"name": "bad", "import_path": "no_such_module:app"})
    env = '{"env_vars": {"SAID": "again"}}'
    with running(path, "--runtime-env-json", env, "--http-port", "0") as line_with:
        assert line_with("Application 'bad' does not run.*")
        assert httpx.get(line_with(r"'default' runs at (http\S+)")).text == "hello again"
    assert nodes.nodes() == []


def test_on_a_node_that_stays_only_its_own_applications_end(cli: Cli, url: str, program: Program) -> None:
    cli.process("serve", "deploy", program.config({"name": "theirs", "route_prefix": "/theirs"}))
    wait_for(cli, "RUNNING", "theirs")
    arguments = (f"{program.name}:app", "--address", "auto", "--route-prefix", "/mine", "--name", "mine")
    with running(*arguments) as line_with:
        assert line_with(r"runs at (http\S+)") == f"{url}/mine"
        assert httpx.get(f"{url}/mine").text == "hello"
    assert httpx.get(f"{url}/mine").status_code == 404
    assert httpx.get(f"{url}/theirs").text == "hello"


def test_without_blocking_it_stays_on_the_node(cli: Cli, url: str, program: Program) -> None:
    cli.process("serve", "run", f"{program.name}:app", "--non-blocking", "--address", "auto")
    assert httpx.get(url).text == "hello"
    assert status(cli)["applications"]["default"]["status"] == "RUNNING"


def test_running_ends_when_somebody_shuts_serve_down(cli: Cli, program: Program) -> None:
    with running(f"{program.name}:app", "--http-port", "0") as line_with:
        line_with("runs at")
        cli.process("serve", "shutdown", "-y")
        line_with("Serve was shut down")
        with pytest.raises(AssertionError, match="nothing further"):
            line_with("nothing further")  # it has ended by itself before it is interrupted


def test_an_application_that_does_not_start_ends_the_command(cli: Cli, program: Program) -> None:
    done = cli.process("serve", "run", f"{program.name}:broken", "--http-port", "0", status=1)
    assert "cannot say anything" in done.err
    assert nodes.nodes() == []


def test_files_that_change_are_deployed_anew(cli: Cli, program: Program) -> None:
    with running(f"{program.name}:app", "--reload", "--http-port", "0") as line_with:
        address = line_with(r"runs at (http\S+)")
        assert httpx.get(address).text == "hello"
        program.write("nonsense(")
        (program.folder / f"{program.name}.py").write_text("nonsense(")
        line_with("SyntaxError")
        assert httpx.get(address).text == "hello"
        program.write("something else")
        line_with(r"runs at (http\S+)")
        assert httpx.get(address).text == "something else"


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["run", "{program}:app", "--non-blocking"], 2, "skate start"),
        (["run", "{program}:app", "bad"], 1, "Invalid application argument 'bad'"),
        (["run", "{program}:app", "bad="], 1, "Invalid application argument 'bad='"),
        (["run", "{program}:app", "a=1"], 1, "Arguments can only be passed to an application builder"),
        (["run", "{program}:unbound"], 1, "is a Deployment: bind it"),
        (["run", "{program}:missing"], 1, "has no 'missing'"),
        (["run", "{program}"], 1, "The import path"),
        (["run", "no_such_module:app"], 1, "No module named 'no_such_module'"),
        (["run", "nothing.yaml"], 1, "The file 'nothing.yaml' does not exist"),
        (["run", "{program}:app", "--runtime-env-json", "{{"], 2, "is not valid JSON"),
        (["run", "{program}:app", "--runtime-env-json", "[1]"], 2, "must be a mapping"),
        (["run", "{program}:app", "--runtime-env", "nothing.yaml"], 1, "nothing.yaml cannot be read"),
        (["run", "{program}:app", "--app-dir", "nowhere"], 2, "'nowhere' does not exist"),
        (["run", "{program}.py"], 1, "name the application in it, like program_"),
        (["run", "none.yaml"], 1, "has no `applications:`"),
        (["build", "{program}:build"], 1, "to be an Application but got <class 'function'>"),
        (["deploy", "bad.yaml"], 1, "bad.yaml is not valid YAML"),
        (
            ["deploy", "twice.yaml"],
            1,
            "(?s)ValidationError.*ServeDeploySchema.*Several applications have the route",
        ),
        (["deploy", "{program}:app"], 1, "No Skate node is running.*skate start"),
        (["status"], 1, "No Skate node is running"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_told_without_a_traceback(
    cli: Cli,
    plain_ray: None,
    program: Program,
    arguments: list[str],
    status: int,
    words: str,
) -> None:
    Path("bad.yaml").write_text("applications: [")
    Path("none.yaml").write_text("import_path: module:app")
    Path("twice.yaml").write_text(
        dedent(
            """
            applications:
            - {name: a, import_path: "m:a"}
            - {name: b, import_path: "m:b"}
            """
        )
    )
    done = cli("serve", *(each.format(program=program.name) for each in arguments), status=status)
    assert re.search(words, done.err), done.err
    assert "Traceback" not in done.err
    assert nodes.nodes() == []


def test_unknown_applications_are_named(cli: Cli, url: str) -> None:
    assert (
        "'x' does not exist. Existing applications: none." in cli("serve", "status", "-n", "x", status=1).err
    )
    assert cli("serve", "config", "-n", "x").out == 'No config has been deployed for application "x".\n'


def test_shutting_down_asks_back(cli: Cli, url: str) -> None:
    assert "Continue?" in cli("serve", "shutdown", status=1).err
    assert status(cli)["proxies"] != {}
