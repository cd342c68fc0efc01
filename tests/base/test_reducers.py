from __future__ import annotations

import threading
from typing import Any

import pytest

from skate._base import reducers, serialization


class Account:
    def __init__(self, balance: int) -> None:
        self.balance = balance
        self.lock = threading.Lock()


class Savings(Account):
    pass


@pytest.fixture(autouse=True)
def clean_table() -> Any:
    before = dict(reducers.REDUCERS)
    yield
    reducers.REDUCERS.clear()
    reducers.REDUCERS.update(before)


def register_account() -> None:
    reducers.register(Account, serializer=lambda account: account.balance, deserializer=Account)


def test_a_registered_reducer_gives_what_pickle_needs() -> None:
    register_account()
    rebuild, args = reducers.REDUCERS[Account](Account(3))
    assert rebuild(*args).balance == 3


def test_the_cores_pickler_uses_the_table() -> None:
    with pytest.raises(TypeError, match="lock"):
        serialization.dumps([Account(3)])
    register_account()
    [copy] = serialization.loads(serialization.dumps([Account(3)]))
    assert copy.balance == 3


def test_reading_needs_no_registration() -> None:
    register_account()
    data = serialization.dumps(Account(4))
    reducers.deregister(Account)
    assert serialization.loads(data).balance == 4


def test_a_local_deserializer_travels_with_the_data() -> None:
    reducers.register(Account, serializer=lambda a: a.balance, deserializer=lambda b: ("rebuilt", b))
    data = serialization.dumps(Account(5))
    reducers.deregister(Account)
    assert serialization.loads(data) == ("rebuilt", 5)


def test_registering_again_replaces() -> None:
    register_account()
    reducers.register(Account, serializer=lambda a: -a.balance, deserializer=Account)
    assert serialization.loads(serialization.dumps(Account(1))).balance == -1


def test_subclasses_are_not_covered() -> None:
    register_account()
    with pytest.raises(TypeError, match="lock"):
        serialization.dumps(Savings(1))


def test_deregistering_takes_effect_and_may_be_repeated() -> None:
    register_account()
    reducers.deregister(Account)
    reducers.deregister(Account)
    with pytest.raises(TypeError, match="lock"):
        serialization.dumps(Account(1))


def test_wrong_arguments_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="cls must be a class"):
        reducers.register(Account(1), serializer=str, deserializer=str)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="serializer for Account must be callable, got 3"):
        reducers.register(Account, serializer=3, deserializer=str)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="deserializer for Account must be callable"):
        reducers.register(Account, serializer=str, deserializer=None)  # type: ignore[arg-type]
