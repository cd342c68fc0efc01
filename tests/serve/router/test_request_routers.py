"""Custom request routers, and the routers of `skate.serve.experimental`."""

from __future__ import annotations

import asyncio
import urllib.request
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

import skate
from skate import serve
from skate.serve._router import current_runtime
from skate.serve._router.routing_views import RequestMetadata
from skate.serve._runtime.ids import DeploymentID
from skate.serve.config import DeploymentActorConfig, RequestRouterConfig
from skate.serve.exceptions import RayServeException, ReplicaDiedError
from skate.serve.experimental.capacity_queue import CapacityQueue
from skate.serve.experimental.capacity_queue_router import CapacityQueueRouter
from skate.serve.experimental.consistent_hash_router import ConsistentHashRouter, _hash_bytes
from skate.serve.experimental.round_robin_router import RoundRobinRouter
from skate.serve.request_router import (
    FIFOMixin,
    LocalityMixin,
    MultiplexMixin,
    PendingRequest,
    PowerOfTwoChoicesRequestRouter,
    RequestRouter,
    RunningReplica,
)
from tests.serve.conftest import light
from tests.serve.waiting import until

ID = DeploymentID("D", "app")


@dataclass(frozen=True)
class Info:
    id: str
    actor_id: str = ""
    node: str = "here"
    max_ongoing_requests: int = 5


@dataclass(eq=False)
class Connection:
    """A replica that does not exist."""

    info: Info
    queue_len: int = 0
    models: Collection[str] = ()
    stats: dict[str, Any] = field(default_factory=dict)

    @property
    def has_room(self) -> bool:
        return self.queue_len < self.info.max_ongoing_requests


def replica(name: str, *models: str, node: str = "here", busy: int = 0) -> RunningReplica:
    return RunningReplica(Connection(Info(name, node=node), busy, models), ID)


def request(*, model: str = "", session: str = "", id: str = "1") -> PendingRequest:
    metadata = RequestMetadata("r", id, multiplexed_model_id=model, session_id=session)
    return PendingRequest([], {}, metadata)


def names(replicas: Sequence[RunningReplica]) -> list[str]:
    return sorted(each.replica_id.unique_id for each in replicas)


async def chosen(router: RequestRouter, pending: PendingRequest | None = None) -> list[list[str]]:
    ranks = await router.choose_replicas(list(router.curr_replicas.values()), pending)
    return [names(rank) for rank in ranks]


class TestRanks:
    def test_replicas_with_the_model_come_first_then_those_with_the_fewest(self) -> None:
        router = PowerOfTwoChoicesRequestRouter(deployment_id=ID)
        replicas = [replica("a", "m"), replica("b", "x", "y"), replica("c", "x"), replica("d", "z")]
        ranks = router.rank_replicas_via_multiplex(replicas, "m")
        assert [names(rank) for rank in ranks] == [["a"], ["c", "d"], ["b"]]

    def test_replicas_of_this_node_come_first(self) -> None:
        router = PowerOfTwoChoicesRequestRouter(deployment_id=ID, self_node_id="here")
        ranks = router.rank_replicas_via_locality([replica("a", node="there"), replica("b")])
        assert [names(rank) for rank in ranks] == [["b"], [], ["a"]]

    def test_only_replicas_with_room_are_available(self) -> None:
        router = PowerOfTwoChoicesRequestRouter(deployment_id=ID)
        router.update_replicas([replica("a", busy=5), replica("b", busy=4)])
        assert names(router.select_available_replicas()) == ["b"]
        assert (
            router.select_available_replicas([router.curr_replicas[next(iter(router.curr_replicas))]]) == []
        )

    def test_a_request_for_a_model_turns_to_others_after_a_while(self) -> None:
        now = 0.0
        router = PowerOfTwoChoicesRequestRouter(deployment_id=ID, get_curr_time_s=lambda: now)
        router.update_replicas([replica("a", "m"), replica("b"), replica("c", "x")])
        pending = request(model="m")
        assert {id.unique_id for id in router.apply_multiplex_routing(pending)} == {"a"}
        assert {id.unique_id for id in router.apply_multiplex_routing(pending)} == {"a"}
        now = 10.0
        assert {id.unique_id for id in router.apply_multiplex_routing(pending)} == {"b"}
        assert not pending.routing_context.should_backoff
        assert {id.unique_id for id in router.apply_multiplex_routing(pending)} == {"a", "b", "c"}
        assert pending.routing_context.should_backoff

    async def test_two_of_all_replicas_are_drawn(self) -> None:
        router = PowerOfTwoChoicesRequestRouter(deployment_id=ID)
        router.update_replicas([replica(name) for name in "abc"])
        (drawn,) = await chosen(router, request())
        assert len(set(drawn)) == 2

    def test_a_wait_grows_up_to_the_longest(self) -> None:
        router = RoundRobinRouter(
            deployment_id=ID, initial_backoff_s=1, backoff_multiplier=2, max_backoff_s=5
        )
        assert [router._backoff_s(attempt) for attempt in range(4)] == [1, 2, 4, 5]
        assert router._backoff_s(100_000) == 5


class TestRoundRobin:
    async def test_each_replica_has_its_turn(self) -> None:
        router = RoundRobinRouter(deployment_id=ID)
        router.update_replicas([replica(name) for name in "abc"])
        turns = [await chosen(router, request()) for _ in range(4)]
        assert turns[0] == [["a"], ["b"], ["c"]]
        assert [turn[0] for turn in turns] == [["a"], ["b"], ["c"], ["a"]]

    async def test_it_goes_around_those_that_have_the_model(self) -> None:
        router = RoundRobinRouter(deployment_id=ID)
        router.update_replicas([replica("a", "m"), replica("b"), replica("c", "m")])
        turns = [(await chosen(router, request(model="m")))[0] for _ in range(4)]
        assert turns == [["a"], ["c"], ["a"], ["c"]]


class TestConsistentHash:
    def make(self, count: int, **kwargs: Any) -> ConsistentHashRouter:
        router = ConsistentHashRouter(deployment_id=ID)
        router.initialize_state(**kwargs)
        router.update_replicas([replica(f"r{number}") for number in range(count)])
        return router

    async def test_every_caller_finds_the_same_replica_for_a_session(self) -> None:
        here, there = self.make(5), self.make(5)
        for number in range(50):
            pending = request(session=f"s{number}")
            assert await chosen(here, pending) == await chosen(there, pending)

    async def test_sessions_are_spread_evenly(self) -> None:
        router = self.make(4)
        owners = [(await chosen(router, request(session=f"s{number}")))[0][0] for number in range(2000)]
        assert min(Counter(owners).values()) > 250

    async def test_only_the_sessions_of_a_replica_that_goes_move(self) -> None:
        router = self.make(5)
        before = {s: (await chosen(router, request(session=s)))[0] for s in map(str, range(300))}
        gone = replica("r2").replica_id
        router.on_replica_actor_died(gone)
        for session, owner in before.items():
            after = (await chosen(router, request(session=session)))[0]
            assert (after == owner) == (owner != ["r2"])

    async def test_so_many_others_stand_in_for_it(self) -> None:
        assert len(await chosen(self.make(5), request(session="s"))) == 3
        assert len(await chosen(self.make(5, num_fallback_replicas=0), request(session="s"))) == 1
        assert len(await chosen(self.make(2, num_fallback_replicas=9), request(session="s"))) == 2

    async def test_without_a_session_each_request_goes_its_own_way(self) -> None:
        router = self.make(5)
        owners = {(await chosen(router, request(id=str(number))))[0][0] for number in range(100)}
        assert len(owners) == 5

    @pytest.mark.parametrize(
        "kwargs",
        [{"num_virtual_nodes": 0}, {"num_virtual_nodes": "many"}, {"num_fallback_replicas": -1}],
    )
    def test_settings_that_cannot_be_are_refused(self, kwargs: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=next(iter(kwargs))):
            ConsistentHashRouter(deployment_id=ID).initialize_state(**kwargs)

    def test_a_hash_has_64_bits(self) -> None:
        assert 0 <= _hash_bytes(b"x") < 1 << 64
        assert _hash_bytes(b"x") != _hash_bytes(b"y")


class Teller:
    """Says which replica it is."""

    def __init__(self) -> None:
        self.name = serve.get_replica_context().replica_tag
        self.gate = asyncio.Event()
        self.measured: dict[str, Any] = {}

    async def __call__(self, *args: Any) -> str:
        return self.name

    async def wait(self) -> str:
        await self.gate.wait()
        return self.name

    async def open(self) -> None:
        self.gate.set()

    async def measure(self, **stats: Any) -> str:
        self.measured = stats
        return self.name

    async def record_routing_stats(self) -> dict[str, Any]:
        if "hang" in self.measured:
            await asyncio.Event().wait()
        if "fail" in self.measured:
            raise ValueError("no stats")
        return self.measured


def teller(router: Any, *, kwargs: dict[str, Any] | None = None, **options: Any) -> Any:
    config = RequestRouterConfig(
        request_router_class=router,
        request_router_kwargs=kwargs or {},
        request_routing_stats_period_s=0.02,
        request_routing_stats_timeout_s=0.5,
    )
    return light(request_router_config=config, **options)(Teller)


def seen(handle: Any, count: int) -> Any:
    """Wait until this process knows all replicas, which it is told of while they start; return the handle."""
    handle.remote().result(timeout_s=30)
    router = current_runtime().router(handle.deployment_id)
    until(lambda: len(router.latest.replicas) == len(router._connected) == count)
    return handle


class FirstByName(RequestRouter):
    """Sends everything to one replica, and keeps a diary."""

    def initialize_state(self, reverse: bool = False) -> None:
        self.reverse = reverse
        self.diary: list[Any] = []

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        assert pending_request is not None
        self.diary.append((pending_request.metadata.call_method, tuple(pending_request.args)))
        ranked = sorted(candidate_replicas, key=lambda each: each.replica_id, reverse=self.reverse)
        return [[each] for each in ranked]


class Highest(RequestRouter):
    """Sends requests to where `score` is highest."""

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        return [[max(candidate_replicas, key=lambda each: each.routing_stats.get("score", 0))]]


class Failing(RequestRouter):
    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        raise ZeroDivisionError("no way")


class Unmakeable(RequestRouter):
    def initialize_state(self, **kwargs: Any) -> None:
        raise ValueError("needs a map")

    async def choose_replicas(self, *args: Any) -> list[list[RunningReplica]]:
        return []


class Strict(FIFOMixin, MultiplexMixin, LocalityMixin, RequestRouter):
    """Uses what the mixins offer."""

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        (near, _, far) = self.rank_replicas_via_locality(candidate_replicas)
        return [self.select_available_replicas(near), self.select_available_replicas(far)]


pytestmark = pytest.mark.usefixtures("engine")


def test_requests_go_where_the_router_says(run: Callable[..., Any]) -> None:
    handle = seen(run(teller(FirstByName, num_replicas=3).bind()), 3)
    first = {handle.remote().result() for _ in range(20)}
    handle = seen(run(teller(FirstByName, kwargs={"reverse": True}, num_replicas=3).bind()), 3)
    assert len(first) == len({handle.remote().result() for _ in range(20)}) == 1


def test_a_router_changes_while_requests_are_served(run: Callable[..., Any]) -> None:
    deployment = teller(FirstByName, num_replicas=3).options(_internal=True, version="1")
    handle = seen(run(deployment.bind()), 3)
    first = handle.remote().result()
    config = RequestRouterConfig(request_router_class=FirstByName, request_router_kwargs={"reverse": True})
    handle = run(deployment.options(request_router_config=config).bind())
    until(lambda: handle.remote().result() != first)
    handle = run(deployment.options(request_router_config=RequestRouterConfig()).bind())
    until(lambda: len({handle.remote().result() for _ in range(50)}) == 3)


def test_a_replica_without_room_is_passed_over_and_waited_for(run: Callable[..., Any]) -> None:
    handle = seen(run(teller(FirstByName, num_replicas=2, max_ongoing_requests=1).bind()), 2)
    blocked = [handle.wait.remote() for _ in range(2)]
    waiting = [handle.remote() for _ in range(10)]
    for response in handle.broadcast("open").results():
        assert response is None
    assert len({each.result() for each in blocked}) == 2
    assert {each.result() for each in waiting} <= {each.result() for each in blocked}


@pytest.mark.parametrize("path", ["skate", "ray"])
def test_a_router_is_found_by_its_path(run: Callable[..., Any], path: str) -> None:
    router = f"{path}.serve.experimental.round_robin_router:RoundRobinRouter"
    handle = seen(run(teller(router, num_replicas=3).bind()), 3)
    answers = [handle.remote().result() for _ in range(9)]
    assert len(set(answers[:3])) == 3
    assert answers[:3] == answers[3:6] == answers[6:]


def test_a_session_stays_at_its_replica(run: Callable[..., Any], url: str) -> None:
    handle = seen(run(teller(ConsistentHashRouter, num_replicas=4).bind()), 4)
    homes = {}
    for number in range(20):
        session = handle.options(session_id=f"s{number}")
        (homes[f"s{number}"],) = {session.remote().result() for _ in range(5)}
    assert len(set(homes.values())) > 1
    # Another process, the proxy, agrees.
    for session, home in list(homes.items())[:5]:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers={"x-session-id": session})
        ) as response:
            assert response.read().decode() == home


def test_what_replicas_measure_reaches_the_router(run: Callable[..., Any]) -> None:
    handle = seen(run(teller(Highest, num_replicas=3).bind()), 3)
    names = set()
    for score in range(1, 4):
        # Each time another one, since the last one's score is lower than what comes next.
        (name,) = {handle.measure.remote(score=-score).result()}
        until(lambda name=name: handle.remote().result() != name)
        names.add(name)
    assert len(names) >= 2


@pytest.mark.parametrize("trouble", ["fail", "hang"])
def test_stats_that_cannot_be_had_leave_the_last_ones(run: Callable[..., Any], trouble: str) -> None:
    handle = seen(run(teller(Highest, num_replicas=2).bind()), 2)
    best = handle.measure.remote(score=1).result()
    until(lambda: {handle.remote().result() for _ in range(5)} == {best})
    assert handle.measure.remote(score=0, **{trouble: True}).result() == best
    assert {handle.remote().result() for _ in range(20)} == {best}


def test_a_router_that_fails_fails_the_request(run: Callable[..., Any]) -> None:
    handle = run(teller(Failing).bind())
    for _ in range(3):
        with pytest.raises(ZeroDivisionError, match="no way"):
            handle.remote().result(timeout_s=30)


def test_a_router_that_cannot_be_made_is_named(run: Callable[..., Any]) -> None:
    handle = run(teller(Unmakeable).bind())
    error = r"Could not create the request router .*Unmakeable.*: ValueError: needs a map"
    with pytest.raises(RayServeException, match=error):
        handle.remote().result(timeout_s=30)


def test_a_class_that_is_no_router_is_named(run: Callable[..., Any]) -> None:
    handle = run(teller(Teller).bind())
    with pytest.raises(RayServeException, match="does not derive from"):
        handle.remote().result(timeout_s=30)


def test_the_mixins_work_together(run: Callable[..., Any]) -> None:
    handle = seen(run(teller(Strict, num_replicas=2, max_ongoing_requests=2).bind()), 2)
    responses = [handle.remote() for _ in range(50)]
    assert len({response.result() for response in responses}) == 2


def test_requests_are_completed_for_the_router_also_when_they_are_cancelled(run: Callable[..., Any]) -> None:
    class Counting(FirstByName):
        def on_request_routed(self, pending_request: PendingRequest, replica_id: Any, result: Any) -> None:
            skate.get_actor("notes").note.remote("+" + pending_request.metadata.call_method)

        def on_request_completed(self, replica_id: Any, internal_request_id: str) -> None:
            skate.get_actor("notes").note.remote("-")

    @skate.remote(num_cpus=0)
    class Notes:
        def __init__(self) -> None:
            self.notes: list[str] = []

        def note(self, word: str) -> None:
            self.notes.append(word)

        def all(self) -> list[str]:
            return self.notes

    notes = Notes.options(name="notes").remote()
    handle = run(teller(Counting).bind())
    handle.remote().result()
    until(lambda: skate.get(notes.all.remote()) == ["+__call__", "-"], lambda: skate.get(notes.all.remote()))
    response = handle.wait.remote()
    until(lambda: skate.get(notes.all.remote())[2:] == ["+wait"], lambda: skate.get(notes.all.remote()))
    response.cancel()
    until(lambda: skate.get(notes.all.remote())[2:] == ["+wait", "-"], lambda: skate.get(notes.all.remote()))
    skate.kill(notes)


def test_a_dead_replica_is_left_out(run: Callable[..., Any]) -> None:
    handle = seen(run(teller(FirstByName, num_replicas=2).bind()), 2)
    first = handle.remote().result()
    (name,) = [
        each["name"]
        for each in skate.util.list_named_actors(all_namespaces=True)
        if each["name"].endswith(first)
    ]
    skate.kill(skate.get_actor(name, "serve"))

    def answer() -> str | None:
        try:
            return str(handle.remote().result())
        except ReplicaDiedError:
            return None  # it was on its way

    # The router would go on asking the first one, and it answers until it is really dead.
    until(lambda: answer() not in (None, first))


def test_a_capacity_queue_sees_that_no_replica_is_asked_for_too_much(run: Callable[..., Any]) -> None:
    queue = DeploymentActorConfig(
        name="room",
        actor_class=CapacityQueue,
        init_kwargs={"acquire_timeout_s": 1, "token_ttl_s": None},
        actor_options={"num_cpus": 0},
    )
    deployment = teller(
        CapacityQueueRouter,
        kwargs={"capacity_queue_actor_name": "room"},
        num_replicas=2,
        max_ongoing_requests=2,
        deployment_actors=[queue],
    )
    handle = seen(run(deployment.bind()), 2)
    assert Counter(each.result() for each in [handle.remote() for _ in range(20)]).total() == 20
    names = [each["name"] for each in skate.util.list_named_actors(all_namespaces=True)]
    (name,) = [name for name in names if name.endswith("::room")]
    actor = skate.get_actor(name, "serve")
    stats = until(lambda: (found := skate.get(actor.get_stats.remote())).total_in_flight == 0 and found)
    assert (stats.num_replicas, stats.total_capacity, stats.queue_size) == (2, 4, 4)
    assert stats.total_acquires >= 21


def test_names_that_routers_for_ray_import_are_there() -> None:
    from skate.serve import request_router

    assert isinstance(request_router.ReplicaResult, type)
    assert "ReplicaResult" not in request_router.__all__
