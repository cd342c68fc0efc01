"""Graphs of tasks and actors, executed once."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import skate
from skate.dag import (
    PARENT_CLASS_NODE_KEY,
    PREV_CLASS_METHOD_CALL_KEY,
    ClassMethodNode,
    InputNode,
    MultiOutputNode,
)
from tests.contract.support import Counter

pytestmark = pytest.mark.usefixtures("session")


@skate.remote
def double(x: int) -> int:
    return 2 * x


@skate.remote
def add(x: int, y: int = 0) -> int:
    return x + y


@skate.remote
def same(x: Any) -> Any:
    return x


@skate.remote(num_cpus=0)
class Account:
    def __init__(self, balance: int) -> None:
        self.balance = balance

    def deposit(self, amount: int) -> int:
        self.balance += amount
        return self.balance

    def read(self) -> int:
        return self.balance

    def scaled(self, x: int) -> int:
        return self.balance * x

    @skate.method(num_returns=2)
    def pair(self, x: int) -> tuple[int, int]:
        return x, x + 1


def test_a_graph_of_functions_gives_a_reference() -> None:
    graph = add.bind(double.bind(2), double.bind(3))
    assert skate.get(graph.execute()) == 10


def test_a_node_that_several_use_is_called_once() -> None:
    counter = Counter.remote()

    @skate.remote
    def count() -> int:
        result: int = skate.get(counter.increment.remote())
        return result

    shared = count.bind()
    assert skate.get(add.bind(shared, shared).execute()) == 2
    assert skate.get(counter.read.remote()) == 1


def test_nodes_are_replaced_at_any_depth() -> None:
    @skate.remote
    def total(nested: dict[str, Any]) -> int:
        return int(skate.get(nested["a"]) + skate.get(nested["b"][0]))

    assert skate.get(total.bind({"a": double.bind(1), "b": [double.bind(2)]}).execute()) == 6


def test_the_input_is_what_execute_is_called_with() -> None:
    with InputNode() as value:
        graph = add.bind(double.bind(value), value)
    assert skate.get(graph.execute(2)) == 6
    assert skate.get(graph.execute(3)) == 9


def test_parts_of_the_input_are_arguments_when_there_are_several() -> None:
    with InputNode() as value:
        graph = add.bind(value[0], value.other)
    assert skate.get(graph.execute(1, other=2)) == 3


@pytest.mark.parametrize("given", [[1, 2], {"x": 1, "y": 2}])
def test_parts_of_a_single_input_are_its_items(given: Any) -> None:
    first, second = (0, 1) if isinstance(given, list) else ("x", "y")
    with InputNode() as value:
        graph = add.bind(value[first], value[second])
    assert skate.get(graph.execute(given)) == 3


def test_parts_of_a_single_input_are_its_attributes() -> None:
    class Point:
        x, y = 1, 2

    with InputNode() as value:
        graph = add.bind(value.x, value.y)
    assert skate.get(graph.execute(Point())) == 3


def test_an_input_takes_no_arguments() -> None:
    with pytest.raises(ValueError, match="InputNode should not take any args or kwargs"):
        InputNode(0)
    with pytest.raises(ValueError, match="InputNode should not take any args or kwargs"):
        InputNode(key=1)


def test_an_input_belongs_into_a_with_statement() -> None:
    with pytest.raises(AssertionError, match="an InputNode that no `with` statement made"):
        same.bind(InputNode()).execute(1)


def test_a_graph_has_one_input() -> None:
    with InputNode() as first:
        a = same.bind(first)
    with InputNode() as second:
        graph = add.bind(a, same.bind(second))
    with pytest.raises(AssertionError, match="should only have one unique InputNode"):
        graph.execute(1)


def test_only_indices_and_names_lead_into_the_input() -> None:
    with (
        InputNode() as value,
        pytest.raises(AssertionError, match="the index of a positional argument or a string selects"),
    ):
        value[1, 2]  # type: ignore[index]


def test_an_actor_is_created_for_each_execution() -> None:
    account = Account.bind(10)
    account.deposit.bind(5)
    graph = account.read.bind()
    assert skate.get(graph.execute()) == 15
    assert skate.get(graph.execute()) == 15


def test_calls_of_an_actor_are_made_in_the_order_of_their_binding() -> None:
    account = Account.bind(1)
    account.deposit.bind(1)
    doubled = account.scaled.bind(10)
    account.deposit.bind(1)
    assert skate.get(add.bind(doubled, account.read.bind()).execute()) == 23


def test_an_actor_may_be_an_argument() -> None:
    @skate.remote
    def read(account: Any) -> int:
        result: int = skate.get(account.read.remote())
        return result

    assert skate.get(read.bind(Account.bind(7)).execute()) == 7


def test_an_actor_node_gives_its_handle() -> None:
    handle = Account.bind(3).execute()
    assert skate.get(handle.read.remote()) == 3


def test_an_actor_cannot_be_made_from_the_input() -> None:
    with InputNode() as value:
        with pytest.raises(ValueError, match="takes the InputNode of the graph"):
            Account.bind(value)
        with pytest.raises(ValueError, match="takes the InputNode of the graph"):
            Account.bind(double.bind(value[0]))


def test_an_existing_actor_keeps_its_state_between_executions() -> None:
    account = Account.remote(0)
    with InputNode() as amount:
        graph = account.deposit.bind(amount)
    assert [skate.get(graph.execute(1)), skate.get(graph.execute(2))] == [1, 3]


def test_a_node_keeps_the_actor_alive() -> None:
    graph = Account.remote(4).read.bind()
    assert skate.get(graph.execute()) == 4


def test_a_method_with_several_results_gives_a_node_for_each() -> None:
    account = Account.remote(0)
    with InputNode() as value:
        first, second = account.pair.bind(value)
        graph = MultiOutputNode([second, first])
    assert skate.get(first.execute(1)) == 1
    assert skate.get(graph.execute(1)) == [2, 1]


def test_several_outputs_come_as_a_list_of_references() -> None:
    with InputNode() as value:
        graph = MultiOutputNode([same.bind(value["x"]), same.bind(value["y"])])
    references = graph.execute({"x": 1, "y": 2})
    assert len(references) == 2
    assert skate.get(references) == [1, 2]
    with pytest.raises(ValueError, match="Invalid input type for `args`"):
        MultiOutputNode(same.bind(1))  # type: ignore[arg-type]


def test_options_are_kept_and_used() -> None:
    @skate.remote
    def name() -> str | None:
        return skate.get_runtime_context().get_task_name()

    graph = name.options(name="the-name").bind()
    assert graph.get_options() == {"name": "the-name"}
    assert skate.get(graph.execute()) == "the-name"
    account = Account.options(max_pending_calls=10).bind(1)
    assert account.get_options().get("max_pending_calls") == 10
    assert account.read.options(name="r").bind().get_options() == {"name": "r"}


def test_bad_options_are_refused() -> None:
    with pytest.raises(ValueError, match="num_cpus cannot be negative"):
        double.options(num_cpus=-1).bind(1).execute()


def test_a_method_node_knows_what_came_before_it() -> None:
    account = Account.bind(1)
    first = account.deposit.bind(1)
    second = account.read.bind()
    others = second.get_other_args_to_resolve()
    assert others[PARENT_CLASS_NODE_KEY] is account
    assert others[PREV_CLASS_METHOD_CALL_KEY] is first
    assert (first.get_method_name(), first.get_args(), first.get_kwargs()) == ("deposit", (1,), {})


def test_bound_nodes_cannot_be_called_as_if_they_were_not() -> None:
    account = Account.bind(1)
    with pytest.raises(AttributeError, match=r"\.bind\(\) cannot be used again on"):
        account.bind()
    with pytest.raises(AttributeError, match="'Account' has no attribute 'remote'"):
        account.remote()
    with pytest.raises(AttributeError, match="has no attribute 'withdraw'"):
        account.withdraw.bind(1)
    with pytest.raises(AttributeError, match=r"\.remote\(\) cannot be used on ClassMethodNodes"):
        account.read.remote()
    with pytest.raises(AttributeError, match=r"\.remote\(\) cannot be used on"):
        double.bind(1).remote()


def test_arguments_must_fit_a_method() -> None:
    account = Account.remote(0)
    with pytest.raises(TypeError, match=r"The method is deposit\(amount.*\), and bind\(\) got"):
        account.deposit.bind(1, 2)


def test_references_of_an_execution_can_be_kept() -> None:
    inner = double.bind(1)
    graph = double.bind(inner)
    reference = graph.execute(_ray_cache_refs=True)
    kept = graph.get_object_refs_from_last_execute()
    assert kept[graph.get_stable_uuid()] == reference
    assert skate.get(kept[inner.get_stable_uuid()]) == 2
    graph.clear_cache()
    assert graph.get_object_refs_from_last_execute() == {}


def test_a_long_chain_of_calls_can_be_executed() -> None:
    graph = same.bind(1)
    for _ in range(300):
        graph = same.bind(graph)
    assert skate.get(graph.execute()) == 1


def test_nodes_print_what_they_call() -> None:
    with InputNode() as value:
        assert str(add.bind(value, y=1)) == "FunctionNode(add(InputNode, y=1))"
        assert str(Account.bind(1)) == "ClassNode(Account(1))"
        assert "read" in str(Account.bind(1).read.bind())


def test_an_input_can_be_copied() -> None:
    with InputNode() as value:
        assert isinstance(copy.copy(value), InputNode)


def test_an_actor_method_is_a_node() -> None:
    assert isinstance(Account.remote(1).read.bind(), ClassMethodNode)
