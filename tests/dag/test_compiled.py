"""Compiled graphs: checked once, run many times."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
from typing import Any

import pytest

import skate
from skate.dag import CompiledDAG, DAGContext, InputNode, MultiOutputNode
from skate.exceptions import (
    ActorDiedError,
    RayCgraphCapacityExceeded,
    RayChannelError,
    RayChannelTimeoutError,
)
from tests.contract.support import Signal, eventually

pytestmark = pytest.mark.usefixtures("session")


@skate.remote(num_cpus=0)
class Adder:
    def __init__(self, total: int = 0) -> None:
        self.total = total

    def add(self, x: int) -> int:
        self.total += x
        return self.total

    def add_two(self, x: int, y: int) -> int:
        self.total += x + y
        return self.total

    def double_and_add(self, x: int) -> int:
        self.total = 2 * self.total + x
        return self.total

    def echo(self, x: Any) -> Any:
        return x

    @skate.method(num_returns=2)
    def pair(self, x: int) -> tuple[int, int]:
        return x, x + 1

    def odd_only(self, x: int) -> int:
        if x % 2 == 0:
            raise ValueError("x is even")
        return x

    def wait_for(self, signal: Any) -> str:
        skate.get(signal[0].wait.remote())
        return "done"

    def die(self, x: int) -> None:
        import os

        os._exit(x)


@skate.remote
def function(x: int) -> int:
    return x


def compiled(method: Any, **options: Any) -> CompiledDAG:
    """Compile the graph that only calls `method` with its input."""
    with InputNode() as value:
        graph = method.bind(value)
    result: CompiledDAG = graph.experimental_compile(**options)
    return result


def test_a_compiled_graph_runs_many_times() -> None:
    graph = compiled(Adder.remote().add)
    assert [skate.get(graph.execute(1)) for _ in range(3)] == [1, 2, 3]


def test_a_reference_names_its_graph_and_execution() -> None:
    graph = compiled(Adder.remote().echo)
    graph.execute(1)
    reference = graph.execute(1)
    assert str(reference) == f"CompiledDAGRef({graph.get_id()}, execution_index=1, channel_index=None)"


def test_results_may_be_got_in_any_order() -> None:
    graph = compiled(Adder.remote().add)
    first, second = graph.execute(1), graph.execute(1)
    assert skate.get(second) == 2
    assert skate.get(first) == 1


def test_a_result_can_be_got_once() -> None:
    reference = compiled(Adder.remote().echo).execute(1)
    assert skate.get(reference) == 1
    with pytest.raises(ValueError, match="was retrieved before"):
        skate.get(reference)


def test_values_pass_from_actor_to_actor() -> None:
    a, b = Adder.remote(0), Adder.remote(100)
    with InputNode() as value:
        graph = a.add.bind(b.add.bind(a.add.bind(value))).experimental_compile()
    assert skate.get(graph.execute(1)) == 102
    assert skate.get(graph.execute(2)) == 309


def test_calls_of_an_actor_are_made_in_the_order_of_their_binding() -> None:
    a, b = Adder.remote(), Adder.remote()
    with InputNode() as value:
        first = b.double_and_add.bind(a.add.bind(value))
        second = a.double_and_add.bind(b.add.bind(value))
        graph = MultiOutputNode([second, first]).experimental_compile()
    assert skate.get(graph.execute(1)) == [4, 1]


def test_several_outputs_come_as_a_list() -> None:
    a, b = Adder.remote(), Adder.remote(10)
    with InputNode() as value:
        graph = MultiOutputNode([a.add.bind(value), b.add.bind(value)]).experimental_compile()
    references = graph.execute(1)
    assert [skate.get(reference) for reference in references] == [1, 11]
    assert skate.get(graph.execute(1)) == [2, 12]


def test_a_list_of_results_holds_nothing_else() -> None:
    with InputNode() as value:
        graph = MultiOutputNode([Adder.remote().add.bind(value)]).experimental_compile()
    with pytest.raises(ValueError, match="mixes references of a compiled graph"):
        skate.get([*graph.execute(1), None])


def test_a_method_with_several_results_feeds_several_calls() -> None:
    a, b = Adder.remote(), Adder.remote()
    with InputNode() as value:
        first, second = a.pair.bind(value)
        graph = MultiOutputNode([b.echo.bind(second), first]).experimental_compile()
    assert skate.get(graph.execute(1)) == [2, 1]


def test_the_same_output_may_be_named_twice() -> None:
    with InputNode() as value:
        node = Adder.remote().add.bind(value)
        graph = MultiOutputNode([node, node]).experimental_compile()
    assert skate.get(graph.execute(1)) == [1, 1]


def test_an_input_that_many_read_is_the_same_for_all() -> None:
    actors = [Adder.remote() for _ in range(3)]
    with InputNode() as value:
        graph = MultiOutputNode([actor.echo.bind(value) for actor in actors]).experimental_compile()
    assert skate.get(graph.execute([1, "a"])) == [[1, "a"]] * 3


def test_parts_of_the_input_are_arguments() -> None:
    with InputNode() as value:
        graph = Adder.remote().add_two.bind(value[0], value.y).experimental_compile()
    assert skate.get(graph.execute(1, y=2)) == 3
    with pytest.raises(ValueError, match=r"must be called with 1 positional args, got 0"):
        graph.execute(y=2)
    with pytest.raises(ValueError, match="must be called with kwarg `y`"):
        graph.execute(1)


def test_constant_arguments_are_kept() -> None:
    with InputNode() as value:
        graph = Adder.remote().add_two.bind(value, y=2).experimental_compile()
    assert skate.get(graph.execute(1)) == 3


# Errors of the calls


def test_an_error_is_raised_by_get_and_the_graph_goes_on() -> None:
    graph = compiled(Adder.remote().odd_only)
    for _ in range(2):
        with pytest.raises(ValueError, match="x is even"):
            skate.get(graph.execute(2))
    assert skate.get(graph.execute(1)) == 1


def test_an_error_of_one_output_is_not_held_up_by_the_others() -> None:
    signal = Signal.remote()
    a, b = Adder.remote(), Adder.remote()
    with InputNode() as value:
        slow, failing = a.wait_for.bind(value[0]), b.odd_only.bind(value[1])
        graph = MultiOutputNode([slow, failing]).experimental_compile()
    references = graph.execute([signal], 2)
    with pytest.raises(ValueError, match="x is even"):
        skate.get(references[0])
    skate.get(signal.send.remote())
    assert skate.get(graph.execute([signal], 1)) == ["done", 1]


def test_the_death_of_an_actor_is_an_error() -> None:
    graph = compiled(Adder.remote().die)
    with pytest.raises(ActorDiedError):
        skate.get(graph.execute(1))


def test_a_result_that_is_not_there_in_time_can_be_asked_for_again() -> None:
    signal = Signal.remote()
    graph = compiled(Adder.remote().wait_for)
    reference = graph.execute([signal])
    with pytest.raises(RayChannelTimeoutError, match="Retry with a longer"):
        skate.get(reference, timeout=0)
    skate.get(signal.send.remote())
    assert skate.get(reference) == "done"


def test_a_negative_timeout_is_refused() -> None:
    reference = compiled(Adder.remote().echo).execute(1)
    with pytest.raises(ValueError, match="Timeout must be non-negative or -1"):
        skate.get(reference, timeout=-3)
    assert skate.get(reference, timeout=-1) == 1


# How much may be in flight


def test_too_many_executions_in_flight_are_refused() -> None:
    graph = compiled(Adder.remote().add, _max_inflight_executions=2)
    references = [graph.execute(1), graph.execute(1)]
    with pytest.raises(RayCgraphCapacityExceeded, match="2 executions of the compiled graph are in flight"):
        graph.execute(1)
    assert skate.get(references) == [1, 2]
    assert skate.get(graph.execute(1)) == 3


def test_too_many_buffered_results_are_refused() -> None:
    graph = compiled(Adder.remote().add, _max_buffered_results=1)
    references = [graph.execute(1), graph.execute(1)]
    with pytest.raises(RayCgraphCapacityExceeded, match="the compiled graph allows 1"):
        skate.get(references[1])
    assert skate.get(references) == [1, 2]


def test_dropped_references_make_room() -> None:
    graph = compiled(Adder.remote().add, _max_inflight_executions=2)
    for _ in range(5):
        graph.execute(1)
        gc.collect()
    assert skate.get(graph.execute(1)) == 6
    assert graph._results == {}


def test_a_dropped_output_does_not_keep_the_others() -> None:
    adder = Adder.remote()
    with InputNode() as value:
        graph = MultiOutputNode([adder.add.bind(value), adder.add.bind(value)]).experimental_compile()
    first, second = graph.execute(1)
    del second
    gc.collect()
    assert skate.get(first) == 1
    assert graph._results == {}


# The end


def test_a_graph_that_was_torn_down_is_closed() -> None:
    adder = Adder.remote()
    graph = compiled(adder.echo)
    reference = graph.execute(1)
    graph.teardown()
    with pytest.raises(RayChannelError, match=r"Channel closed\."):
        skate.get(reference)
    with pytest.raises(RayChannelError, match=r"Channel closed\."):
        graph.execute(1)
    assert skate.get(compiled(adder.echo).execute(2)) == 2


def test_teardown_can_kill_the_actors() -> None:
    adder = Adder.remote()
    graph = compiled(adder.echo)
    skate.get(graph.execute(1))
    graph.teardown(kill_actors=True)

    def is_dead() -> bool:
        try:
            skate.get(adder.echo.remote(1))
        except ActorDiedError:
            return True
        return False

    eventually(is_dead, "the actor is dead")


# Asyncio


async def test_results_can_be_awaited_once() -> None:
    graph = compiled(Adder.remote().add, enable_asyncio=True)
    first = await graph.execute_async(1)
    second = await graph.execute_async(1)
    assert not isinstance(first, list)
    assert not isinstance(second, list)
    assert await second == 2
    assert await first == 1
    with pytest.raises(ValueError, match="was awaited before"):
        await first


async def test_several_outputs_can_be_gathered() -> None:
    a, b = Adder.remote(), Adder.remote(10)
    with InputNode() as value:
        graph = MultiOutputNode([a.add.bind(value), b.add.bind(value)]).experimental_compile(
            enable_asyncio=True
        )
    futures = await graph.execute_async(1)
    assert await asyncio.gather(*futures) == [1, 11]


async def test_an_awaited_error_is_raised_at_once() -> None:
    signal = Signal.remote()
    a, b = Adder.remote(), Adder.remote()
    with InputNode() as value:
        slow, failing = a.wait_for.bind(value[0]), b.odd_only.bind(value[1])
        graph = MultiOutputNode([slow, failing]).experimental_compile(enable_asyncio=True)
    futures = await graph.execute_async([signal], 2)
    with pytest.raises(ValueError, match="x is even"):
        await futures[0]
    await signal.send.remote()


async def test_each_kind_of_graph_has_its_way_to_run() -> None:
    with pytest.raises(ValueError, match="Use execute if enable_asyncio=False"):
        await compiled(Adder.remote().add).execute_async(1)
    with pytest.raises(ValueError, match="Use execute_async if enable_asyncio=True"):
        compiled(Adder.remote().add, enable_asyncio=True).execute(1)


async def test_dropped_futures_make_room() -> None:
    graph = compiled(Adder.remote().add, enable_asyncio=True, _max_inflight_executions=2)
    for _ in range(5):
        await graph.execute_async(1)
        gc.collect()
    last = await graph.execute_async(1)
    assert not isinstance(last, list)
    assert await last == 6


# What cannot be compiled


def test_a_graph_needs_an_input() -> None:
    with pytest.raises(ValueError, match="A compiled graph needs an input"):
        Adder.remote().add.bind(1).experimental_compile()


def test_every_call_needs_a_node_among_its_arguments() -> None:
    a, b = Adder.remote(), Adder.remote()
    with InputNode() as value:
        graph = MultiOutputNode([a.add.bind(value), b.add.bind(1)])
    with pytest.raises(ValueError, match="takes no node of the graph"):
        graph.experimental_compile()


def test_functions_cannot_be_compiled() -> None:
    with InputNode() as value:
        graph = function.bind(value)
    with pytest.raises(NotImplementedError, match="only support actor method nodes"):
        graph.experimental_compile()


def test_actors_must_exist() -> None:
    with InputNode() as value:
        graph = Adder.bind().add.bind(value)
    with pytest.raises(ValueError, match=r"Create it with \.remote\(\) instead of \.bind\(\)"):
        graph.experimental_compile()


def test_nodes_cannot_be_keyword_arguments() -> None:
    with InputNode() as value:
        graph = Adder.remote().add_two.bind(x=value, y=1)
    with pytest.raises(ValueError, match="a node cannot be a keyword argument"):
        graph.experimental_compile()


@pytest.mark.parametrize("wrap", [lambda node: [node], lambda node: {"a": node}, lambda node: (node, node)])
def test_nodes_cannot_be_inside_of_arguments(wrap: Any) -> None:
    with InputNode() as value:
        graph = Adder.remote().echo.bind(wrap(value))
    with pytest.raises(ValueError, match="contains 1 nodes: in a compiled graph a node cannot be part of"):
        graph.experimental_compile()


def test_the_input_is_used_as_a_whole_or_in_parts() -> None:
    with InputNode() as value:
        graph = Adder.remote().add_two.bind(value, value[0])
    with pytest.raises(ValueError, match="either the whole input everywhere, or parts"):
        graph.experimental_compile()


def test_every_part_of_the_input_must_be_used() -> None:
    adder = Adder.remote()
    with InputNode() as value:
        first, second, third = value[0], value[1], value[2]
        adder.echo.bind(second)
        graph = adder.add_two.bind(first, third)
    with pytest.raises(ValueError, match=r"does not depend on these bound parts of its input: 1\."):
        graph.experimental_compile()


def test_every_call_must_lead_to_an_output() -> None:
    adder = Adder.remote()
    with InputNode() as value:
        adder.add.bind(value)
        graph = adder.add.bind(value)
    with pytest.raises(ValueError, match="The graph never uses the results of"):
        graph.experimental_compile()


def test_every_result_of_a_call_must_lead_to_an_output() -> None:
    with InputNode() as value:
        first, _ = Adder.remote().pair.bind(value)
    with pytest.raises(ValueError, match="The graph never uses the results of"):
        first.experimental_compile()


def test_a_graph_is_compiled_once() -> None:
    with InputNode() as value:
        inner = Adder.remote().add.bind(value)
        graph = MultiOutputNode([inner])
    graph.experimental_compile().teardown()
    with pytest.raises(ValueError, match="was compiled before, and a graph can be compiled once"):
        graph.experimental_compile()
    with pytest.raises(ValueError, match="shares nodes with the compiled graph that ends in"):
        inner.experimental_compile()


# References do not travel


def test_a_reference_stays_where_it_is() -> None:
    reference = compiled(Adder.remote().echo).execute(1)
    with pytest.raises(ValueError, match=r"CompiledDAGRef cannot be copied\."):
        copy.copy(reference)
    with pytest.raises(ValueError, match=r"CompiledDAGRef cannot be deep copied\."):
        copy.deepcopy(reference)
    with pytest.raises(ValueError, match=r"CompiledDAGRef cannot be pickled\."):
        pickle.dumps(reference)


def test_a_graph_can_live_in_an_actor() -> None:
    @skate.remote(num_cpus=0)
    class Server:
        def __init__(self) -> None:
            with InputNode() as value:
                self.graph = Adder.remote(10).add.bind(value).experimental_compile()

        def serve(self, x: int) -> int:
            result: int = skate.get(self.graph.execute(x))
            return result

    assert skate.get(Server.remote().serve.remote(1)) == 11


# Settings


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_CGRAPH_get_timeout", "3")
    monkeypatch.setenv("SKATE_CGRAPH_max_inflight_executions", "4")
    context = DAGContext()
    assert (context.get_timeout, context.max_inflight_executions) == (3, 4)
    monkeypatch.setenv("RAY_CGRAPH_get_timeout", "long")
    with pytest.raises(ValueError, match="RAY_CGRAPH_get_timeout must be a number"):
        DAGContext()
    assert DAGContext.get_current() is DAGContext.get_current()
