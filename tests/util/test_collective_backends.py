"""Custom backends: a tiny one, whose members meet in an actor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import skate
from skate.util import collective as col
from skate.util import list_named_actors
from skate.util.collective import backend_registry
from skate.util.collective.collective_group.base_collective_group import BaseGroup
from skate.util.collective.types import (
    AllGatherOptions,
    AllReduceOptions,
    Backend,
    BarrierOptions,
    BroadcastOptions,
    RecvOptions,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    SendOptions,
)
from tests.contract.support import eventually


class Exchange:
    """An actor in which members put their values and get those of all."""

    def __init__(self) -> None:
        self._rounds: dict[tuple[str, int], dict[int, Any]] = {}
        self._news = asyncio.Condition()

    async def swap(self, group: str, number: int, rank: int, value: Any, size: int) -> list[Any]:
        async with self._news:
            values = self._rounds.setdefault((group, number), {})
            values[rank] = value
            self._news.notify_all()
            await self._news.wait_for(lambda: len(values) == size)
            return [values[each] for each in range(size)]


class ListBackend(BaseGroup):
    """Works on lists of numbers."""

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        super().__init__(world_size, rank, group_name)
        self._round = 0
        self._exchange = skate.get_actor("exchange")
        self.is_destroyed = False

    @classmethod
    def backend(cls) -> str:
        return "LISTS"

    @classmethod
    def check_backend_availability(cls) -> bool:
        return True

    def destroy_group(self) -> None:
        self.is_destroyed = True

    def _swap(self, value: Any) -> list[Any]:
        self._round += 1
        values: list[Any] = skate.get(
            self._exchange.swap.remote(self.group_name, self._round, self.rank, value, self.world_size)
        )
        return values

    def allreduce(self, tensor: list[Any], allreduce_options: AllReduceOptions) -> None:
        combine = max if allreduce_options.reduceOp == ReduceOp.MAX else sum
        tensor[0][:] = [combine(column) for column in zip(*self._swap(tensor[0]), strict=True)]

    def barrier(self, barrier_options: BarrierOptions) -> None:
        self._swap(None)

    def reduce(self, tensor: list[Any], reduce_options: ReduceOptions) -> None:
        values = self._swap(tensor[0])
        if self.rank == reduce_options.root_rank:
            tensor[0][:] = [sum(column) for column in zip(*values, strict=True)]

    def allgather(
        self, tensor_list: list[list[Any]], tensor: list[Any], allgather_options: AllGatherOptions
    ) -> None:
        tensor_list[0][:] = self._swap(tensor[0])

    def broadcast(self, tensor: list[Any], broadcast_options: BroadcastOptions) -> None:
        tensor[0][:] = self._swap(tensor[0])[broadcast_options.root_rank]

    def reducescatter(
        self, tensor: list[Any], tensor_list: list[list[Any]], reducescatter_options: ReduceScatterOptions
    ) -> None:
        mine = [entries[self.rank] for entries in self._swap(tensor_list[0])]
        tensor[0][:] = [sum(column) for column in zip(*mine, strict=True)]

    def send(self, tensor: list[Any], send_options: SendOptions) -> None:
        assert self._swap(tensor[0])[send_options.dst_rank] is None

    def recv(self, tensor: list[Any], recv_options: RecvOptions) -> None:
        tensor[0][:] = self._swap(None)[recv_options.src_rank]


class Member:
    """An actor that runs functions."""

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    col.register_collective_backend("lists", ListBackend)
    yield
    backend_registry._custom.clear()
    del Backend._known["LISTS"], Backend.LISTS  # type: ignore[attr-defined]


@pytest.fixture
def members(local: None) -> Iterator[list[Any]]:
    exchange = skate.remote(num_cpus=0, max_concurrency=10)(Exchange).options(name="exchange").remote()
    actors = [skate.remote(num_cpus=0)(Member).remote() for _ in range(2)]
    skate.get([actor.run.remote(col.register_collective_backend, "lists", ListBackend) for actor in actors])
    yield actors
    for actor in (*actors, exchange):
        skate.kill(actor)
    eventually(lambda: not any(row["name"] == "exchange" for row in list_named_actors(all_namespaces=True)))


def every_operation(rank: int, name: str) -> dict[str, Any]:
    one, most, reduced, sent = [rank, 1], [rank], [1], [rank]
    gathered: list[Any] = [None, None]
    shared, scattered = [rank], [0]
    col.allreduce(one, name)
    col.allreduce(most, name, ReduceOp.MAX)
    col.reduce(reduced, 1, name)
    col.broadcast(shared, 1, name)
    col.allgather(gathered, [rank], name)
    col.reducescatter(scattered, [[10 + rank], [20 + rank]], name)
    if rank == 0:
        col.send(sent, 1, name)
    else:
        col.recv(sent, 0, name)
    col.barrier(name)
    handle = col.get_group_handle(name)
    rank_and_size = col.get_rank(name), col.get_collective_group_size(name)
    col.destroy_collective_group(name)
    return {
        "allreduce": (one, most),
        "reduce": reduced,
        "broadcast": shared,
        "allgather": gathered,
        "reducescatter": scattered,
        "recv": sent,
        "group": (type(handle).__name__, handle.is_destroyed, *rank_and_size),  # type: ignore[union-attr]
    }


def expected(rank: int) -> dict[str, Any]:
    return {
        "allreduce": ([1, 2], [1]),
        "reduce": [2] if rank == 1 else [1],
        "broadcast": [1],
        "allgather": [[0], [1]],
        "reducescatter": [21] if rank == 0 else [41],
        "recv": [0],
        "group": ("ListBackend", True, rank, 2),
    }


def test_members_that_join_use_every_operation_of_a_custom_backend(members: list[Any]) -> None:
    def join_and_use(rank: int) -> dict[str, Any]:
        col.init_collective_group(2, rank, "Lists", "joined")
        return every_operation(rank, "joined")

    found = skate.get([actor.run.remote(join_and_use, rank) for rank, actor in enumerate(members)])
    assert found == [expected(0), expected(1)]


def test_declared_members_use_every_operation_of_a_custom_backend(members: list[Any]) -> None:
    col.create_collective_group(members, 2, [0, 1], "lists", "declared")
    found = skate.get(
        [actor.run.remote(every_operation, rank, "declared") for rank, actor in enumerate(members)]
    )
    assert found == [expected(0), expected(1)]


def test_a_declaration_outlives_members_of_other_groups(members: list[Any]) -> None:
    others = [skate.remote(num_cpus=0)(Member).remote() for _ in range(2)]
    skate.get([actor.run.remote(col.register_collective_backend, "lists", ListBackend) for actor in others])
    skate.get(
        [
            actor.run.remote(col.init_collective_group, 2, rank, "lists", "others")
            for rank, actor in enumerate(others)
        ]
    )
    col.create_collective_group(members, 2, [0, 1], "lists", "outlives")
    for actor in others:
        skate.kill(actor)
    found = skate.get(
        [actor.run.remote(every_operation, rank, "outlives") for rank, actor in enumerate(members)]
    )
    assert found == [expected(0), expected(1)]


@pytest.mark.parametrize("engine", ["inline", "local"])
def test_groups_of_an_earlier_session_are_forgotten(no_session: None, engine: str) -> None:
    for _ in range(2):
        skate.init(engine=engine, num_cpus=1)
        skate.remote(num_cpus=0)(Exchange).options(name="exchange").remote()
        actor = skate.remote(num_cpus=0)(Member).remote()
        col.create_collective_group([actor], 1, [0], "lists", "declared")
        skate.shutdown()


def test_a_registered_backend_has_a_name_and_is_available() -> None:
    assert Backend("Lists") == Backend.LISTS == "LISTS"  # type: ignore[attr-defined]
    assert col.is_backend_available("lists")
    assert not col.is_backend_available("nothing")


def test_a_backend_can_be_registered_again_but_its_name_not_taken() -> None:
    col.register_collective_backend("LISTS", ListBackend)

    class Other(ListBackend):
        pass

    for name in ("lists", "gloo"):
        with pytest.raises(ValueError, match="already registered"):
            col.register_collective_backend(name, Other)
    with pytest.raises(TypeError, match="BaseGroup"):
        col.register_collective_backend("dict", dict)  # type: ignore[arg-type]


def test_a_backend_that_is_not_registered_says_how_to_register_it() -> None:
    with pytest.raises(ValueError, match="register_collective_backend"):
        col.init_collective_group(1, 0, "unknown")


def test_a_backend_that_is_not_available_is_refused() -> None:
    class Absent(ListBackend):
        @classmethod
        def check_backend_availability(cls) -> bool:
            return False

    backend_registry._custom["LISTS"] = Absent
    assert not col.is_backend_available("lists")
    with pytest.raises(RuntimeError, match="LISTS is not available"):
        col.init_collective_group(1, 0, "lists")


def test_ranks_and_lists_are_checked_for_custom_backends(local: None) -> None:
    exchange = skate.remote(num_cpus=0)(Exchange).options(name="exchange").remote()
    skate.get(exchange.__ray_ready__.remote())
    col.init_collective_group(1, 0, "lists", "alone")
    with pytest.raises(ValueError, match="Rank 1 is not in"):
        col.broadcast([1], 1, "alone")
    with pytest.raises(RuntimeError, match="itself"):
        col.send([1], 0, "alone")
    with pytest.raises(ValueError, match="one per rank"):
        col.allgather([], [1], "alone")
    col.destroy_collective_group("alone")
    skate.kill(exchange)
