from __future__ import annotations

import json
import os
from collections.abc import Iterator

import click
import pytest

import skate
from skate._api import nodes
from skate.cli.listing import parse_filter
from skate.util import state
from skate.util.placement_group import placement_group
from tests.plugins.command_line import Cli


@skate.remote
class Actor:
    def pid(self) -> int:
        return os.getpid()


@skate.remote
def quick() -> int:
    return 1


@pytest.fixture
def session(node: nodes.NodeRecord) -> Iterator[None]:
    """This process, attached to the node."""
    skate.init(address="auto", namespace="here")
    yield
    skate.shutdown()


def test_actors_are_listed_as_a_table(cli: Cli, session: None) -> None:
    actor = Actor.options(name="one").remote()
    pid = skate.get(actor.pid.remote())
    header, row = cli.process("list", "actors").out.splitlines()
    assert header.split() == ["ACTOR_ID", "CLASS_NAME", "STATE", "NAME", "RAY_NAMESPACE", "JOB_ID", "PID"]
    assert row.split()[:5] == [actor._actor_id.hex(), "Actor", "ALIVE", "one", "here"]
    assert row.split()[-1] == str(pid)


@pytest.mark.parametrize("format_", ["json", "yaml"])
def test_json_has_every_column(cli: Cli, session: None, format_: str) -> None:
    skate.get(quick.remote())
    (row,) = json.loads(cli("list", "tasks", "--format", format_).out)
    (listed,) = state.list_tasks()
    assert row == {name: listed[name] for name in listed.list_columns(detail=False)}
    (row,) = json.loads(cli("list", "tasks", "--format", format_, "--detail").out)
    assert row == state.list_tasks(detail=True)[0].asdict()


def test_details_are_shown_a_column_to_a_line(cli: Cli, session: None) -> None:
    skate.get([quick.remote(), quick.remote()])
    first, second = cli("list", "tasks", "--detail").out.split("\n\n")
    for block in (first, second):
        fields = dict(line.split(maxsplit=1) for line in block.splitlines())
        assert fields["name"] == "quick"
        assert fields["required_resources"] == '{"CPU": 1.0}'


def test_filters_and_limits_choose_rows(cli: Cli, session: None) -> None:
    skate.get([quick.options(name=f"t{i}").remote() for i in range(4)])
    assert len(json.loads(cli("list", "tasks", "-f", "name!=t0", "--format", "json").out)) == 3
    (row,) = json.loads(cli("list", "tasks", "-f", "name=T1", "-f", "state=finished", "--format", "json").out)
    assert row["name"] == "t1"
    done = cli("list", "tasks", "--limit", "2", "--format", "json")
    assert len(json.loads(done.out)) == 2
    assert "2 of 4 tasks are shown" in done.err


def test_nothing_found_is_said_and_is_no_data(cli: Cli, node: nodes.NodeRecord) -> None:
    done = cli("list", "placement-groups")
    assert (done.out, done.err) == ("", "There are no placement groups.\n")
    assert "that match" in cli("list", "actors", "-f", "state=ALIVE").err
    assert cli("list", "actors", "--format", "json").out == "[]\n"


@pytest.mark.parametrize("name", ["objects", "nodes", "workers", "jobs", "placement-groups", "runtime-envs"])
def test_every_kind_can_be_listed(cli: Cli, session: None, name: str) -> None:
    actor = Actor.options(runtime_env={"env_vars": {"X": "1"}}).remote()
    group = placement_group([{"CPU": 1}], name="group")
    kept = skate.put(b"x" * 200_000)
    skate.get([actor.pid.remote(), group.ready()])
    assert len(cli("list", name).out.splitlines()) >= 2
    assert json.loads(cli("list", name.replace("-", "_"), "--format", "json").out)
    del kept


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["list", "actors", "-f", "stat=ALIVE"], "Did you mean 'state'?"),
        (["list", "actors", "-f", "pid=x"], "needs an integer"),
        (["list", "actors", "--limit", "0"], "limit"),
        (["get", "actors", "00"], "skate list actors"),
        (["why", "zz"], "hexadecimal"),
        (["list", "actors", "--address", "host:1"], "on this machine"),
    ],
)
def test_a_question_that_cannot_be_answered_ends_with_one_line(
    cli: Cli, node: nodes.NodeRecord, arguments: list[str], words: str
) -> None:
    done = cli(*arguments, status=1)
    assert done.out == ""
    assert words in done.err
    assert done.err.count("\n") == 1


def test_one_thing_is_shown_with_everything(cli: Cli, session: None) -> None:
    actor = Actor.remote()
    skate.get(actor.pid.remote())
    id = actor._actor_id.hex()
    assert json.loads(cli("get", "actor", id, "--format", "json").out) == state.get_actor(id).asdict()
    assert f"actor_id {id}" in " ".join(cli("get", "actors", id).out.split())
    reference = quick.remote()
    skate.get(reference)
    assert json.loads(cli("get", "objects", reference.hex(), "--format", "json").out)[0]["pid"] == os.getpid()


def test_tasks_actors_and_objects_are_counted(cli: Cli, session: None) -> None:
    actor = Actor.remote()
    kept = skate.put(b"x" * 2_000_000)
    skate.get([actor.pid.remote(), quick.remote(), quick.remote()])
    assert "quick NORMAL_TASK 2 FINISHED" in " ".join(cli("summary", "tasks").out.split())
    assert "Actor Actor 1 ALIVE" in " ".join(cli("summary", "actors").out.split())
    assert json.loads(cli("summary", "objects", "--format", "json").out)["total_size_mb"] > 1.8
    assert "MiB" in cli("summary", "objects").err
    del kept


def test_commands_are_no_jobs(cli: Cli, node: nodes.NodeRecord) -> None:
    cli("list", "actors")
    cli("status")
    assert json.loads(cli("list", "jobs", "--format", "json").out) == []
    assert json.loads(cli("list", "workers", "--format", "json").out) == []
    program = "import skate; skate.init('auto'); print(skate.get_runtime_context().get_job_id())"
    assert cli.program(program).out == "01000000\n"


def test_a_programs_own_node_is_found_too(cli: Cli) -> None:
    skate.init(num_cpus=1)
    skate.get(quick.options(name="private").remote())
    assert "private" in cli.process("list", "tasks").out
    assert skate.get(quick.remote()) == 1


def test_filters_are_read_from_left_to_right() -> None:
    assert parse_filter("key=value") == ("key", "=", "value")
    assert parse_filter("key!=value") == ("key", "!=", "value")
    assert parse_filter("key=a!=b=c") == ("key", "=", "a!=b=c")
    assert parse_filter("key!=a=b") == ("key", "!=", "a=b")
    for bad in ("keyvalue", "key=", "=value", "!=value", "key>value", "key!="):
        with pytest.raises(click.BadParameter):
            parse_filter(bad)
