"""Nodes inside of values: found at any depth, and replaced without touching the rest."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest

from skate.dag._template import Template


class Mark:
    """Stands in for a node."""


class Holder:
    def __init__(self, inner: Any) -> None:
        self.inner = inner


@pytest.mark.parametrize("value", [1, "text", None, [1, {"a": (2, 3)}], Holder("x"), {1, 2}])
def test_a_value_without_nodes_is_handed_out_as_it_is(value: Any) -> None:
    template = Template(value, Mark)
    assert template.nodes == []
    assert template.fill(lambda node: "other") is value


def test_a_node_itself_is_replaced() -> None:
    mark = Mark()
    template = Template(mark, Mark)
    assert template.is_node
    assert template.fill(lambda node: (node, "result")) == (mark, "result")


def test_nodes_in_containers_are_replaced() -> None:
    first, second = Mark(), Mark()
    template = Template([first, {"key": (second, 1)}, [first]], Mark)
    assert template.nodes == [first, second]
    names = {first: "first", second: "second"}
    assert template.fill(names.__getitem__) == ["first", {"key": ("second", 1)}, ["first"]]


def test_nodes_in_objects_are_replaced_in_a_copy() -> None:
    mark = Mark()
    holder = Holder(Holder((mark,)))
    filled = Template(holder, Mark).fill(lambda node: 1)
    assert filled.inner.inner == (1,)
    assert holder.inner.inner == (mark,)


def test_an_object_of_a_local_class_is_searched_too() -> None:
    class Local:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

    filled = Template(Local([Mark()]), Mark).fill(lambda node: 1)
    assert isinstance(filled, Local)
    assert filled.inner == [1]


def test_functions_beside_a_node_are_kept() -> None:
    def function() -> int:
        return 3

    mark = Mark()
    assert Template([function, mark, len], Mark).fill(lambda node: 1) == [function, 1, len]


def test_arrays_beside_a_node_are_not_copied() -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.zeros(10)
    filled = Template([array, Mark()], Mark).fill(lambda node: 1)
    assert filled[0] is array


def test_a_value_that_cannot_be_copied_is_handed_out_as_it_is() -> None:
    value = [threading.Lock(), Mark()]
    template = Template(value, Mark)
    assert template.nodes == []
    assert template.fill(lambda node: 1) is value


def test_a_template_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(Template([Mark(), 2], Mark)))
    assert copy.fill(lambda node: 1) == [1, 2]
