from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from skate._base import reducers
from skate._base.serialization import dumps, loads
from skate.util import serialization_addons
from skate.util.serialization import StandaloneSerializationContext


class Locked:
    """Cannot be pickled as it is."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __reduce__(self) -> Any:
        raise TypeError("locked")


@pytest.fixture
def context() -> Iterator[StandaloneSerializationContext]:
    known = set(reducers.REDUCERS)
    yield StandaloneSerializationContext()
    for cls in set(reducers.REDUCERS) - known:
        reducers.deregister(cls)


def test_a_context_registers_serializers_and_reducers(context: StandaloneSerializationContext) -> None:
    context._register_cloudpickle_serializer(Locked, lambda locked: locked.value, Locked)
    assert loads(dumps(Locked(1))).value == 1
    context._register_cloudpickle_reducer(Locked, lambda locked: (Locked, (locked.value + 1,)))
    assert loads(dumps(Locked(1))).value == 2
    context._unregister_cloudpickle_reducer(Locked)
    with pytest.raises(TypeError, match="locked"):
        dumps(Locked(1))


def test_the_state_of_starlette_travels(context: StandaloneSerializationContext) -> None:
    datastructures: Any = pytest.importorskip("starlette.datastructures")
    serialization_addons.apply(context)
    assert loads(dumps(datastructures.State({"a": 1}))).a == 1


def test_without_starlette_nothing_is_registered(
    context: StandaloneSerializationContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "starlette.datastructures", None)
    before = dict(reducers.REDUCERS)
    serialization_addons.apply(context)
    assert before == reducers.REDUCERS
