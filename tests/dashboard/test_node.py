"""The connection to the node: errors that end it, errors that do not, and shared answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from skate.dashboard import _node
from skate.dashboard._node import Node
from skate.dashboard._topics import Problem
from skate.exceptions import ActorDiedError, NodeDiedError


class FakeObserver:
    is_local = False
    session = "/nowhere"

    def __init__(self) -> None:
        self.is_closed = False
        self.is_over = False

    def about(self) -> dict[str, Any]:
        return {"engine": "fake"}

    def has_ended(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_closed = True


def fail_with(error: Exception) -> Any:
    def question(_: Any) -> None:
        raise error

    return question


@pytest.fixture
def observers() -> list[FakeObserver]:
    return [FakeObserver(), FakeObserver()]


@pytest.fixture
async def node(observers: list[FakeObserver], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(_node, "RECONNECT_INTERVAL_S", 0.01)
    left = list(observers)

    def connect() -> Any:
        if not left:
            raise ConnectionError("No node is running.")
        return left.pop(0)

    made = Node(connect)
    await made.start()
    yield made
    await made.close()


async def connected(node: Node, wanted: bool) -> None:
    async with asyncio.timeout(10):
        while node.is_connected != wanted:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.001)


async def test_a_node_that_has_died_is_connected_to_again(node: Node, observers: list[FakeObserver]) -> None:
    with pytest.raises(Problem, match="The node is gone") as raised:
        await node.ask(fail_with(NodeDiedError("dead")))
    assert raised.value.status == 503
    assert not node.is_connected
    await connected(node, True)
    assert node.generation == 2
    assert observers[0].is_closed
    assert node.describe() == {"engine": "fake", "connected": True, "problem": None}


async def test_without_a_node_the_problem_is_told(node: Node) -> None:
    for _ in range(2):
        with pytest.raises(Problem):
            await node.ask(fail_with(ConnectionResetError("reset")))
        await asyncio.sleep(0.05)
    with pytest.raises(Problem, match="No node is running"):
        await node.ask(lambda _: None)
    assert node.describe()["connected"] is False
    assert "No node is running" in node.describe()["problem"]


@pytest.mark.parametrize("error", [PermissionError("denied"), ValueError("wrong")])
async def test_an_error_of_a_question_does_not_end_the_connection(node: Node, error: Exception) -> None:
    with pytest.raises(type(error)):
        await node.ask(fail_with(error))
    assert node.is_connected


async def test_any_error_of_a_cluster_that_is_gone_ends_the_connection(
    node: Node, observers: list[FakeObserver]
) -> None:
    observers[0].is_over = True
    with pytest.raises(Problem, match="no Ray cluster answers at /nowhere") as raised:
        await node.ask(fail_with(ValueError("Cannot invoke RPC on closed channel!")))
    assert raised.value.status == 503
    await connected(node, True)
    assert observers[0].is_closed


async def test_the_death_of_an_actor_does_not_end_the_connection(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def call(session: str, function: Any, *, as_ray: bool) -> None:
        raise ActorDiedError("the controller died")

    monkeypatch.setattr(FakeObserver, "is_local", True)
    monkeypatch.setattr(node._caller, "call", call)
    with pytest.raises(Problem, match="the controller died"):
        await node.call(lambda: None)
    assert node.is_connected


async def test_a_node_that_does_not_answer_is_reported(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    monkeypatch.setattr(_node, "ANSWER_TIMEOUT_S", 0.01)
    answered = threading.Event()
    with pytest.raises(Problem, match="has not answered") as raised:
        await node.ask(lambda _: answered.wait(10))
    answered.set()
    assert raised.value.status == 504


async def test_an_answer_is_shared_until_it_is_old(node: Node) -> None:
    computed = 0

    async def compute() -> int:
        nonlocal computed
        computed += 1
        await asyncio.sleep(0)
        return computed

    assert await asyncio.gather(*(node.share("key", compute) for _ in range(5))) == [1] * 5
    assert await node.share("key", compute) == 1
    assert await node.share("key", compute, max_age_s=-1.0) == 2
    assert await node.share("other", compute) == 3


async def test_an_error_is_shared_too_and_then_tried_again(node: Node) -> None:
    attempts = 0

    async def compute() -> None:
        nonlocal attempts
        attempts += 1
        raise Problem(503, "gone")

    for _ in range(2):
        with pytest.raises(Problem):
            await node.share("key", compute, max_age_s=-1.0)
    assert attempts == 2
