from __future__ import annotations

import pickle
import threading
from typing import Any

import numpy as np
import pytest

from skate._base.object_ref import ObjectRef
from skate._base.serialization import ALIGNMENT, context, dumps, dumps_call, loads, serialize


@pytest.mark.parametrize("value", [None, 1, 2.5, True, "text", b"bytes", [1, [2]], {"a": (1, 2)}, {1, 2}])
def test_plain_values_come_back_equal(value: Any) -> None:
    assert loads(dumps(value)) == value


def test_a_plain_value_is_an_ordinary_pickle() -> None:
    assert pickle.loads(dumps([1, 2])) == [1, 2]


def test_a_local_function_travels_by_value() -> None:
    factor = 3
    assert loads(dumps(lambda x: x * factor))(2) == 6


def test_an_array_is_not_copied_into_the_stream() -> None:
    payload = serialize(np.zeros(1_000_000))
    assert len(payload.stream) < 1000
    assert payload.size >= 8_000_000


def test_an_array_comes_back_read_only_and_aligned() -> None:
    array = loads(dumps({"x": np.arange(100)}))["x"]
    assert array.sum() == 4950
    assert not array.flags.writeable
    assert array.ctypes.data % ALIGNMENT == 0


def test_an_array_lies_on_the_bytes_it_was_read_from() -> None:
    payload = serialize(np.arange(1000))
    memory = bytearray(payload.size)
    payload.write_into(memoryview(memory))
    array = loads(memoryview(memory))
    memory[-8000:] = b"\0" * 8000
    assert not array[100:].any()


def test_a_strided_array_comes_back_equal() -> None:
    array = np.arange(20).reshape(4, 5)[:, ::2]
    assert (loads(dumps(array)) == array).all()


def test_several_arrays_keep_their_places() -> None:
    values = [np.full(i + 1, i) for i in range(10)]
    for before, after in zip(values, loads(dumps(values)), strict=True):
        assert (before == after).all()


def test_what_cannot_be_pickled_raises() -> None:
    with pytest.raises(TypeError, match=r"_thread\.lock"):
        serialize([threading.Lock()])


def test_references_met_are_collected_once_each_time() -> None:
    class Engine:
        def reference_pickled(self, reference: ObjectRef[Any]) -> None:
            assert context.collected is not None
            context.collected.append(reference)

    reference: ObjectRef[Any] = ObjectRef.from_random()
    reference._engine = Engine()
    payload = serialize({"a": [reference], "b": reference})
    assert payload.references == [reference]  # pickle writes the second as the same object
    assert context.collected is None


def test_arguments_of_a_call_come_back_as_a_pair() -> None:
    assert loads(dumps_call((1, "x"), {}).to_bytes()) == ((1, "x"), None)
    assert loads(dumps_call((), {"a": [1]}).to_bytes()) == ((), {"a": [1]})
