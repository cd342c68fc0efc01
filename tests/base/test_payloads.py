"""Values as bytes for the libraries' own sockets."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import skate
from skate._api import payloads
from skate._api.payloads import declare_importable, pack, pack_call, unpack
from skate._base import serialization


@dataclasses.dataclass
class Declared:
    """A class that every process can import."""

    value: Any


declare_importable(Declared)


class Subclass(Declared):
    """Has not been declared itself."""


@pytest.fixture
def pickles_by_value(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the values that cloudpickle pickles."""
    pickled: list[Any] = []

    def serialize(value: Any) -> serialization.Serialized:
        pickled.append(value)
        return serialization.serialize(value)

    monkeypatch.setattr(payloads, "serialize", serialize)
    return pickled


@pytest.mark.parametrize("value", [1, "text", [1, {"a": None}], Subclass(3), Declared(Declared("deep"))])
def test_arguments_arrive_as_they_are(value: Any) -> None:
    args = (value, Declared(value))
    assert unpack(pack_call(args, {}) or b"") == (args, {})
    assert unpack(pack_call(args, {"key": value}) or b"") == (args, {"key": value})


def test_declared_classes_need_no_cloudpickle(pickles_by_value: list[Any]) -> None:
    assert pack_call((Declared([1]), "plain"), {})
    assert not pickles_by_value
    assert pack_call((Declared([1]), Subclass(1)), {})
    assert len(pickles_by_value) == 1


def test_a_declared_class_may_contain_what_only_cloudpickle_knows(pickles_by_value: list[Any]) -> None:
    packed = pack_call((Declared(lambda: 7),), {})
    ((found,), _) = unpack(packed or b"")
    assert found.value() == 7
    assert len(pickles_by_value) == 1


def test_large_arguments_and_references_are_left_to_the_engine() -> None:
    assert pack_call((Declared(bytes(payloads.LARGEST)),), {}) is None
    skate.init(num_cpus=1, include_dashboard=False)
    try:
        reference = skate.put(1)
        assert pack_call((Declared(reference),), {}) is None
        assert pack(Declared(reference)) is None
    finally:
        skate.shutdown()
