"""Functions and classes of an imported module are pickled by reference: a worker imports the module once."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

import skate

pytestmark = pytest.mark.usefixtures("by_reference", "engine")

CALLS: list[int] = []


@dataclass
class Point:
    x: int


class OutOfRange(ValueError):
    """An error of this module."""


def note(number: int) -> list[int]:
    CALLS.append(number)
    return CALLS


@skate.remote
def noted_in_the_module(number: int) -> bool:
    """Return whether a plain function of the module uses the variables of the module that was imported here."""
    return note(number) is sys.modules[__name__].CALLS


@skate.remote
def moved(point: Point) -> Point:
    if type(point) is not sys.modules[__name__].Point:
        raise TypeError("another class of the same name")
    return Point(point.x + 1)


@skate.remote
def fail() -> None:
    raise OutOfRange("too far")


@skate.remote
class Caller:
    def call(self, number: int) -> list[int]:
        return note(number)

    def calls(self) -> list[int]:
        calls: list[int] = sys.modules[__name__].CALLS
        return calls


def test_a_function_that_a_task_calls_is_that_of_the_module() -> None:
    assert skate.get(noted_in_the_module.remote(1))


def test_an_instance_of_its_class_is_one_in_the_worker_and_afterwards() -> None:
    assert skate.get(moved.remote(Point(1))) == Point(2)


def test_its_error_is_caught_by_its_class() -> None:
    with pytest.raises(OutOfRange, match="too far"):
        skate.get(fail.remote())


def test_methods_of_an_actor_see_the_variables_of_the_module() -> None:
    caller = Caller.remote()
    assert skate.get(caller.call.remote(7)) == skate.get(caller.calls.remote())
