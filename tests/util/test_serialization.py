from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import skate
from skate._base.reducers import REDUCERS
from skate.util.serialization import deregister_serializer, register_serializer


class Account:
    def __init__(self, balance: int) -> None:
        self.balance = balance
        self.lock = threading.Lock()


class Odd(OSError):
    def __init__(self, message: str) -> None:
        self.message = message


@pytest.fixture
def session() -> Iterator[None]:
    skate.init(num_cpus=2)
    yield
    skate.shutdown()


@pytest.fixture(autouse=True)
def clean_table() -> Iterator[None]:
    yield
    for cls in (Account, Odd):
        REDUCERS.pop(cls, None)


def register_account() -> None:
    register_serializer(Account, serializer=lambda account: account.balance, deserializer=Account)


def test_a_registered_class_can_be_put_passed_and_nested(session: None) -> None:
    @skate.remote
    def balance(account: Any, others: list[Any]) -> int:
        return int(account.balance + sum(other.balance for other in others))

    register_account()
    assert skate.get(skate.put(Account(1))).balance == 1
    assert skate.get(balance.remote(Account(1), [Account(2), Account(3)])) == 6


def test_a_class_can_be_registered_before_a_session_starts() -> None:
    register_account()
    skate.init(num_cpus=1)
    try:
        assert skate.get(skate.put(Account(5))).balance == 5
    finally:
        skate.shutdown()


def test_a_deregistered_class_fails_as_before(session: None) -> None:
    register_account()
    deregister_serializer(Account)
    deregister_serializer(Account)
    with pytest.raises(TypeError, match=r"_thread\.lock"):
        skate.put(Account(1))


def test_a_registration_holds_in_the_process_that_made_it_alone(session: None) -> None:
    @skate.remote
    def make() -> Any:
        return Account(1)

    @skate.remote
    def register_and_make() -> Any:
        register_account()
        return Account(2)

    register_account()
    with pytest.raises(Exception, match="lock"):
        skate.get(make.remote())
    assert skate.get(register_and_make.remote()).balance == 2


def test_an_exception_can_have_a_serializer(session: None) -> None:
    @skate.remote
    def fail() -> None:
        register_serializer(Odd, serializer=lambda error: error.message, deserializer=Odd)
        raise Odd("just so")

    with pytest.raises(Odd) as caught:
        skate.get(fail.remote())
    assert caught.value.cause.message == "just so"  # type: ignore[attr-defined]
