"""Applications deployed from a configuration file."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import httpx
import pytest

import skate
from skate import serve
from skate.serve._controller.client import Client, connect
from skate.serve.schema import APIType, ApplicationStatus, DeploymentStatus, ServeDeploySchema
from tests.serve.conftest import light
from tests.serve.waiting import until

pytestmark = pytest.mark.usefixtures("engine")

PROGRAM = """
import os
from pydantic import BaseModel
import skate
from skate import serve

LIGHT = {"num_cpus": 0.1}

@serve.deployment(ray_actor_options=LIGHT)
class Says:
    def __init__(self, what, other=None):
        if what == "broken":
            raise RuntimeError("cannot say anything")
        self.what, self.other = what, other
        self.config = None

    def reconfigure(self, config):
        self.config = config

    async def __call__(self):
        said = self.what if self.config is None else f"{self.what} {self.config}"
        return said if self.other is None else f"{said} {await self.other.remote()}"

    async def pid(self):
        return os.getpid()

    async def variable(self):
        return os.environ.get("SAID")

hello = Says.bind("hello")
both = Says.bind("both", Says.options(name="Other").bind("others"))
broken = Says.bind("broken")
unbound = Says
number = 3

def build(args):
    return Says.bind(args.get("what", "nothing"))

class Arguments(BaseModel):
    what: str
    times: int = 1

def typed(args: Arguments):
    return Says.bind(args.what * args.times)

def of_two(one, two):
    return hello

def of_nothing(args):
    return None
"""


class File:
    """A configuration file and the program that it names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.module = f"declared_{os.urandom(4).hex()}"
        self.write(PROGRAM)
        client = connect()
        assert client is not None
        self.client: Client = client

    def write(self, text: str) -> None:
        (self.folder / f"{self.module}.py").write_text(dedent(text))

    def app(self, what: str = "hello", **fields: Any) -> dict[str, Any]:
        return {"import_path": f"{self.module}:{what}", **fields}

    def deploy(self, *apps: dict[str, Any], **top: Any) -> None:
        """Deploy, and wait until all applications run or have failed."""
        file = ServeDeploySchema.model_validate({"applications": list(apps), **top})
        self.client.deploy_config(file, folder=str(self.folder))
        for app in file.applications:
            self.client.wait(app.name)


@pytest.fixture
def file(url: str, tmp_path: Path) -> File:
    return File(tmp_path)


def said(app: str = "default") -> Any:
    return serve.get_app_handle(app).remote().result()


def pid(app: str = "default") -> Any:
    return serve.get_app_handle(app).pid.remote().result()


def status(app: str = "default") -> Any:
    return serve.status().applications[app]


def test_an_application_is_built_by_its_import_path_and_reached(file: File, url: str) -> None:
    file.deploy(file.app("both", route_prefix="/both"))
    assert httpx.get(f"{url}/both").text == "both others"
    assert status().status is ApplicationStatus.RUNNING
    assert set(status().deployments) == {"Says", "Other"}


@pytest.mark.parametrize(
    ("what", "args", "answer"),
    [
        ("build", {}, "nothing"),
        ("build", {"what": "something"}, "something"),
        ("typed", {"what": "ho", "times": 3}, "hohoho"),
    ],
)
def test_a_function_builds_the_application_from_arguments(
    file: File, what: str, args: dict[str, Any], answer: str
) -> None:
    file.deploy(file.app(what, args=args))
    assert said() == answer


@pytest.mark.parametrize(
    ("app", "words"),
    [
        ({"import_path": "no_such_module:app"}, "No module named 'no_such_module'"),
        ({"what": "missing"}, "has no 'missing'"),
        ({"what": "unbound"}, "is a Deployment: bind it"),
        ({"what": "number"}, "got <class 'int'>"),
        ({"what": "of_two"}, "exactly one parameter"),
        ({"what": "of_nothing"}, "must return an Application"),
        ({"what": "typed", "args": {"times": "x"}}, "validation errors for Arguments"),
        ({"args": {"a": 1}}, "Arguments can only be passed to an application builder function"),
        ({"deployments": [{"name": "Sayz"}]}, "Deployment 'Sayz' does not exist.*Did you mean 'Says'"),
        ({"what": "broken"}, "cannot say anything"),
        ({"runtime_env": {"working_dir": "/no/such/folder"}}, "no/such/folder"),
    ],
    ids=str,
)
def test_what_is_wrong_with_one_application_is_told_by_its_status_alone(
    file: File, app: dict[str, Any], words: str
) -> None:
    wrong = {**file.app(app.pop("what", "hello")), "name": "wrong", "route_prefix": "/wrong", **app}
    file.deploy(file.app(name="right"), wrong)
    assert status("wrong").status is ApplicationStatus.DEPLOY_FAILED
    assert re.search(words, status("wrong").message, re.DOTALL), status("wrong").message
    assert status("right").status is ApplicationStatus.RUNNING
    assert said("right") == "hello"


def test_an_error_in_the_program_shows_where_it_is(file: File) -> None:
    file.write("from skate import serve\nx = (1 + 2\n")
    file.deploy(file.app())
    assert "Traceback (most recent call last)" in status().message
    assert "x = (1 + 2" in status().message


def test_a_bad_update_leaves_what_runs(file: File) -> None:
    file.deploy(file.app())
    before = pid()
    file.deploy(file.app("missing"))
    assert status().status is ApplicationStatus.DEPLOY_FAILED
    assert (said(), pid()) == ("hello", before)
    file.deploy(file.app())
    assert status().status is ApplicationStatus.RUNNING
    assert pid() == before


@pytest.mark.parametrize(
    "change",
    [
        {"num_replicas": 1},
        {"max_ongoing_requests": 7},
        {"user_config": {"k": 1}},
        {"health_check_period_s": 3},
        {"graceful_shutdown_timeout_s": 3},
        {"autoscaling_config": {"min_replicas": 1, "max_replicas": 2}},
    ],
    ids=str,
)
def test_light_changes_keep_replicas(file: File, change: dict[str, Any]) -> None:
    file.deploy(file.app())
    before = pid()
    file.deploy(file.app(deployments=[{"name": "Says", **change}]))
    assert pid() == before
    details = file.client.details().applications["default"].deployments["Says"]
    (name, value) = next(iter(change.items()))
    found = getattr(details.deployment_config, name)
    assert value.items() <= found.items() if isinstance(value, dict) else found == value
    assert said() == ("hello {'k': 1}" if "user_config" in change else "hello")


@pytest.mark.parametrize(
    "change",
    [
        {"deployments": [{"name": "Says", "ray_actor_options": {"num_cpus": 0.2}}]},
        {"runtime_env": {"env_vars": {"SAID": "1"}}},
    ],
    ids=str,
)
def test_heavy_changes_replace_replicas(file: File, change: dict[str, Any]) -> None:
    file.deploy(file.app())
    before = pid()
    file.deploy(file.app(**change))
    assert pid() != before


def test_a_program_that_was_edited_is_deployed_anew(file: File) -> None:
    file.deploy(file.app())
    before = pid()
    file.deploy(file.app())
    assert pid() == before
    file.write(PROGRAM.replace('Says.bind("hello")', 'Says.bind("goodbye")'))
    file.deploy(file.app())
    assert said() == "goodbye"


def test_an_option_that_the_file_does_not_name_any_more_is_the_programs_again(file: File) -> None:
    file.deploy(file.app(deployments=[{"name": "Says", "num_replicas": 2}]))
    assert status().deployments["Says"].replica_states == {"RUNNING": 2}
    file.deploy(file.app())
    assert status().deployments["Says"].replica_states == {"RUNNING": 1}


def test_variables_of_application_and_deployment_reach_replicas(file: File) -> None:
    own = {
        "name": "Other",
        "ray_actor_options": {"num_cpus": 0.1, "runtime_env": {"env_vars": {"SAID": "own"}}},
    }
    file.deploy(file.app("both", runtime_env={"env_vars": {"SAID": "all"}}, deployments=[own]))
    assert serve.get_app_handle("default").variable.remote().result() == "all"
    assert serve.get_deployment_handle("Other", "default").variable.remote().result() == "own"


def test_the_next_file_replaces_applications_of_the_one_before(file: File, url: str) -> None:
    one, two, three = (
        file.app("build", name=n, route_prefix=f"/{n}", args={"what": n}) for n in ("a", "b", "c")
    )
    file.deploy(one, two)
    file.deploy({**two, "route_prefix": "/other"}, three)
    assert [httpx.get(f"{url}/{path}").text for path in ("other", "c")] == ["b", "c"]
    assert httpx.get(f"{url}/a").status_code == httpx.get(f"{url}/b").status_code == 404


def test_applications_of_a_file_can_change_places(file: File, url: str) -> None:
    names = ("a", "b")
    first = [file.app("build", name=n, route_prefix=f"/{n}", args={"what": n}) for n in names]
    file.deploy(*first)
    file.deploy({**first[0], "route_prefix": "/b"}, {**first[1], "route_prefix": "/a"})
    assert [httpx.get(f"{url}/{path}").text for path in names] == ["b", "a"]


def test_applications_of_programs_are_left_alone(file: File, run: Callable[..., Any]) -> None:
    @light
    def mine() -> str:
        return "mine"

    run(mine.bind(), name="mine", route_prefix="/mine")
    file.deploy(file.app())
    file.deploy()
    assert list(serve.status().applications) in (["mine"], ["mine", "default"])
    assert said("mine") == "mine"
    assert file.client.configs() == {}


def test_a_route_that_a_program_uses_is_refused(file: File, run: Callable[..., Any]) -> None:
    @light
    def mine() -> str:
        return "mine"

    run(mine.bind(), name="mine", route_prefix="/x")
    file.deploy(file.app(route_prefix="/x"))
    assert 'belongs to application "mine"' in status().message
    assert said("mine") == "mine"


def test_a_program_can_take_over_an_application_of_a_file(file: File, run: Callable[..., Any]) -> None:
    @light
    def mine() -> str:
        return "mine"

    file.deploy(file.app())
    run(mine.bind())
    assert said() == "mine"
    file.deploy()
    assert said() == "mine"


def test_a_part_of_the_capacity_is_a_part_of_the_replicas(file: File) -> None:
    app = file.app(deployments=[{"name": "Says", "num_replicas": 4}])
    file.deploy(app, target_capacity=50)
    assert status().deployments["Says"].replica_states == {"RUNNING": 2}
    assert serve.status().target_capacity == 50
    file.deploy(app)
    assert status().deployments["Says"].replica_states == {"RUNNING": 4}


def test_a_part_of_the_capacity_bounds_autoscaling(file: File) -> None:
    scaling = {"min_replicas": 2, "initial_replicas": 4, "max_replicas": 8, "downscale_delay_s": 0}
    app = file.app(deployments=[{"name": "Says", "autoscaling_config": scaling}])

    def replicas(target_capacity: float | None) -> int:
        file.deploy(app, target_capacity=target_capacity)
        return until(lambda: settled(target_capacity))

    def settled(target_capacity: float | None) -> Any:
        states = status().deployments["Says"].replica_states
        return (
            serve.status().target_capacity == target_capacity
            and set(states) == {"RUNNING"}
            and states["RUNNING"]
        )

    # On the way up there is no load to go by: the first number of replicas counts.
    assert [replicas(target_capacity) for target_capacity in (25, 50, 100)] == [1, 2, 4]
    # On the way down, and once all of it is wanted, the load does.
    assert until(lambda: replicas(50) == 1)
    assert until(lambda: replicas(None) == 2)


def test_another_controller_knows_the_way_of_the_capacity(file: File) -> None:
    scaling = {"min_replicas": 1, "initial_replicas": 4, "max_replicas": 8, "downscale_delay_s": 0}

    def replicas(target_capacity: float, version: int) -> int | None:
        deployment = {"name": "Says", "autoscaling_config": scaling, "user_config": {"version": version}}
        file.deploy(file.app(deployments=[deployment]), target_capacity=target_capacity)
        assert said() == f"hello {{'version': {version}}}"
        return file.client.details().applications["default"].deployments["Says"].target_num_replicas

    assert [replicas(25, 1), replicas(50, 2)] == [1, 2]
    os.kill(skate.get(file.client.actor.get_pid.remote()), signal.SIGKILL)
    # The file says the same capacity again: only who remembers the step before knows that it was one up.
    assert replicas(50, 3) == 2
    assert replicas(100, 4) == 4


def test_details_say_how_everything_stands(file: File, url: str) -> None:
    file.deploy(file.app("both", route_prefix="/both"))
    details = file.client.details()
    assert details.http_options is not None
    assert details.http_options.port == httpx.URL(url).port
    app = details.applications["default"]
    assert (app.source, app.route_prefix) == (APIType.DECLARATIVE, "/both")
    assert app.deployed_app_config is not None
    assert app.deployed_app_config.import_path == f"{file.module}:both"
    assert app.deployment_topology is not None
    calls = {name: node.outbound_deployments for name, node in app.deployment_topology.nodes.items()}
    assert calls == {"Says": [{"name": "Other", "app_name": "default"}], "Other": []}
    says = app.deployments["Says"]
    assert says.status is DeploymentStatus.HEALTHY
    assert [replica.pid for replica in says.replicas] == [pid()]
    assert says.required_resources == {"CPU": 0.1}
    assert details._get_user_facing_json_serializable_dict(exclude_unset=True)["applications"]


def test_an_application_can_be_deleted_while_it_is_built(file: File) -> None:
    file.write("import time\ntime.sleep(60)\n")
    config = ServeDeploySchema.model_validate({"applications": [file.app()]})
    file.client.deploy_config(config, folder=str(file.folder))
    assert status().status is ApplicationStatus.DEPLOYING
    serve.delete("default")
    assert serve.status().applications == {}
