"""`skate kill-actor`."""

from __future__ import annotations

import os

import pytest

import skate
from skate._api import nodes
from skate._api.actor_lookup import ActorLookupError, find_actor
from tests.contract.support import eventually
from tests.plugins.command_line import Cli


@skate.remote(num_cpus=0)
class Store:
    def pid(self) -> int:
        return os.getpid()


@pytest.fixture
def session(node: nodes.NodeRecord) -> None:
    skate.init(address="auto", namespace="demo", log_to_driver=False)


def test_an_actor_is_killed_by_its_name_or_its_id(cli: Cli, session: None) -> None:
    for named in (True, False):
        actor = Store.options(name="store" if named else None).remote()
        skate.get(actor.pid.remote())
        id = actor._actor_id.hex()
        assert cli.process("kill-actor", "store" if named else id).out == f"{id}\n"
        with pytest.raises(skate.exceptions.ActorDiedError):
            skate.get(actor.pid.remote())
        assert "has already died" in cli("kill-actor", id, status=1).err


def test_an_actor_restarts_if_it_may(cli: Cli, session: None) -> None:
    actor = Store.options(name="phoenix", max_restarts=1, max_task_retries=-1).remote()
    before = skate.get(actor.pid.remote())
    cli("kill-actor", "phoenix", "--restart")
    eventually(lambda: skate.get(actor.pid.remote()) != before)


def test_a_name_in_several_namespaces_needs_one(cli: Cli, session: None) -> None:
    actors = {name: Store.options(name="store", namespace=name).remote() for name in ("a", "b")}
    skate.get([actor.pid.remote() for actor in actors.values()])
    text = cli("kill-actor", "store", status=1).err
    assert "2 actors have the name 'store'" in text
    for name, actor in actors.items():
        assert f"'store' in the namespace '{name}' ({actor._actor_id.hex()})" in text
    assert "The namespace 'c' has no" in cli("kill-actor", "store", "--namespace", "c", status=1).err
    assert cli("kill-actor", "store", "--namespace", "b").out.strip() == actors["b"]._actor_id.hex()
    assert skate.get(actors["a"].pid.remote())


def row(id: str, name: str = "", state: str = "ALIVE", class_name: str = "Store") -> dict[str, object]:
    return {
        "actor_id": bytes.fromhex(id),
        "name": name,
        "namespace": "demo",
        "state": state,
        "class_name": class_name,
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stor", "Did you mean 'store' or 'storage'?"),
        ("Counter", "Actors of the class 'Counter' are cc."),
        ("nothing", "`skate list actors` shows all actors."),
        ("dd", "The actor dd has already died."),
        ("gone", "No living actor has the name or the id 'gone'."),
    ],
)
def test_an_unknown_actor_is_an_error_that_helps(text: str, words: str) -> None:
    rows = [
        row("aa", "store"),
        row("bb", "storage"),
        row("cc", class_name="Counter"),
        row("dd", "", "DEAD"),
        row("ee", "gone", "DEAD"),
    ]
    with pytest.raises(ActorLookupError) as caught:
        find_actor(rows, text)
    assert words in str(caught.value)
