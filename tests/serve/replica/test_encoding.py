"""Return values of deployments as JSON, with and without FastAPI."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import ipaddress
import json
import pathlib
import re
import types
import uuid
from typing import Any

import numpy
import pytest
from pydantic import BaseModel, Field
from starlette.datastructures import URL, Headers, QueryParams

from skate.serve._replica import encoding
from skate.serve._replica.encoding import encode_response, to_json


class Model(BaseModel):
    x: int = Field(default=1, serialization_alias="ex")


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Record:
    color: Color = Color.RED
    numbers: Any = dataclasses.field(default_factory=lambda: numpy.arange(2))


class Plain:
    def __init__(self) -> None:
        self.z = 3
        self.inner = {"path": pathlib.PurePosixPath("/a"), "array": numpy.ones(1)}


Pair = collections.namedtuple("Pair", "a b")  # as users write them

# What Ray 2.60 answers.
VALUES: list[tuple[Any, Any]] = [
    (QueryParams("a=1&b=2"), {"a": "1", "b": "2"}),
    (Headers({"a": "b"}), {"a": "b"}),
    (Model(), {"ex": 1}),
    (Record(), {"color": "red", "numbers": [0, 1]}),
    (Color.RED, "red"),
    (frozenset([1]), [1]),
    (collections.deque([1, Color.RED]), [1, "red"]),
    (datetime.datetime(2020, 1, 1), "2020-01-01T00:00:00"),
    (datetime.timedelta(seconds=3), 3.0),
    (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    ([decimal.Decimal("1.5"), decimal.Decimal(2)], [1.5, 2]),
    (pathlib.Path("/x"), "/x"),
    (ipaddress.ip_address("::1"), "::1"),
    (re.compile("a+"), "a+"),
    ({"a": numpy.float32(1.5), "b": numpy.bool_(True)}, {"a": 1.5, "b": True}),
    (Pair(1, 2), [1, 2]),
    (Plain(), {"z": 3, "inner": {"path": "/a", "array": [1.0]}}),
    (types.MappingProxyType({"a": 1}), {"a": 1}),
    (collections.UserDict(a=1), {"a": 1}),
    ({"a": b"x"}, {"a": "x"}),
    ({1: 2, uuid.UUID(int=1): {Color.RED: 3}}, {"1": 2, str(uuid.UUID(int=1)): {"red": 3}}),
    (ValueError("x"), "x"),
    (URL("http://a/?c=d"), {"_url": "http://a/?c=d"}),
]


@pytest.fixture(params=["with FastAPI", "without FastAPI"])
def installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_has_fastapi", lambda: request.param == "with FastAPI")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("value", "expected"), VALUES, ids=lambda value: type(value).__name__)
def test_a_value_is_encoded_wherever_it_stands(value: Any, expected: Any) -> None:
    assert json.loads(to_json(value)) == expected
    assert json.loads(to_json({"nested": [value]})) == {"nested": [expected]}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("value", [int, object(), {(1, 2): 3}], ids=["class", "object", "key"])
def test_what_cannot_be_encoded_says_so(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be sent as JSON"):
        to_json(value)


def test_nothing_is_an_empty_text() -> None:
    assert encode_response(None) == (200, [(b"content-type", b"text/plain"), (b"content-length", b"0")], b"")
