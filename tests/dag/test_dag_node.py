from __future__ import annotations

from typing import Any

import skate
from skate.dag import ClassMethodNode, ClassNode, DAGNode, FunctionNode, InputNode


@skate.remote
def add(left: Any, right: Any = 0) -> Any:
    return left + right


@skate.remote
class Counter:
    def __init__(self, start: Any) -> None:
        self.count = start

    def up(self, by: Any) -> Any:
        self.count += by
        return self.count


def test_a_function_is_applied_to_each_node_once_from_the_inputs_on() -> None:
    with InputNode() as value:
        shared = add.bind(value, 1)
        graph = add.bind(shared, right=[shared])
    seen: list[DAGNode] = []

    def describe(node: DAGNode) -> str:
        seen.append(node)
        if isinstance(node, InputNode):
            return "input"
        return f"add{node.get_args()}{node.get_kwargs()}"

    inner = "add('input', 1){}"
    assert graph.apply_recursive(describe) == f"add({inner!r},){{'right': [{inner!r}]}}"
    assert [type(node) for node in seen] == [InputNode, FunctionNode, FunctionNode]
    assert seen[-1].get_stable_uuid() == graph.get_stable_uuid()
    assert graph.get_args() == (shared,)


def test_a_graph_can_be_rebuilt_with_another_input() -> None:
    with InputNode() as value:
        counter = Counter.bind(10)
        graph = counter.up.bind(add.bind(value, 1))

    def constant(node: DAGNode) -> Any:
        return 4 if isinstance(node, InputNode) else node

    rebuilt = graph.apply_recursive(constant)
    assert isinstance(rebuilt, ClassMethodNode)
    assert isinstance(rebuilt.actor, ClassNode)
    assert rebuilt.actor is not counter
    assert rebuilt.actor is rebuilt.get_other_args_to_resolve()["parent_class_node"]
    skate.init(engine="inline")
    try:
        assert skate.get(rebuilt.execute()) == 15
        assert skate.get(graph.execute(1)) == 12
    finally:
        skate.shutdown()


def test_nodes_in_a_value_are_replaced_without_changing_it() -> None:
    one, two = add.bind(1), add.bind(2)
    source = [one, {"two": two, "again": one}, 3]
    replaced = one.apply_functional(source, lambda node: node is one, lambda node: node.get_args()[0])
    assert replaced == [1, {"two": two, "again": 1}, 3]
    assert source == [one, {"two": two, "again": one}, 3]


def test_all_connected_nodes_are_visited_once() -> None:
    with InputNode() as value:
        first = add.bind(value.left, value.right)
        last = add.bind(first, first)
    seen: list[DAGNode] = []
    last.traverse_and_apply(seen.append)
    assert {type(node).__name__ for node in seen} == {"FunctionNode", "InputAttributeNode", "InputNode"}
    assert len(seen) == len(set(seen)) == 5


def test_an_input_keeps_what_it_is_given() -> None:
    with InputNode() as value:
        value.set_context("key", 1)
    assert value.get_other_args_to_resolve() == {"key": 1}


def test_a_call_is_no_output_of_a_call() -> None:
    call = Counter.bind(1).up.bind(2)
    assert (call.class_method_call, call.output_idx) == (None, None)
