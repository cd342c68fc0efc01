"""Mistakes in calls of the core: each error names the given value and the remedy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import skate

pytestmark = pytest.mark.usefixtures("engine")


@skate.remote
def echo(x: Any = 0) -> Any:
    return x


@skate.remote
class Actor:
    def method(self) -> int:
        return 1


MISTAKES: dict[str, tuple[Callable[[Any, Any], Any], type[Exception], str]] = {
    "get with a timeout that is text": (
        lambda ref, _: skate.get(ref, timeout="1"),
        TypeError,
        r"'timeout' argument must be a number of seconds or None, got '1' \(str\)",
    ),
    "get of several with a timeout that is text": (
        lambda ref, _: skate.get([ref], timeout="1"),
        TypeError,
        r"must be a number of seconds or None, got '1' \(str\)",
    ),
    "get with a negative timeout": (
        lambda ref, _: skate.get(ref, timeout=-1),
        ValueError,
        "must not be negative",
    ),
    "wait with a timeout that is text": (
        lambda ref, _: skate.wait([ref], timeout="1"),
        TypeError,
        r"must be a number of seconds or None, got '1' \(str\)",
    ),
    "wait for more than there are": (
        lambda ref, _: skate.wait([ref], num_returns=2),
        ValueError,
        r"num_returns is 2, but wait\(\) got only 1 references",
    ),
    "cancel of an actor": (
        lambda _, actor: skate.cancel(actor),
        TypeError,
        r"To end an actor, call `kill\(actor\)`",
    ),
    "kill of a reference": (lambda ref, _: skate.kill(ref), ValueError, r"Tasks end with cancel\(\)"),
    "get_actor of a number": (lambda *_: skate.get_actor(3), TypeError, r"is a string, got 3 \(int\)"),
    "an option that does not exist": (
        lambda *_: echo.options(num_cpu=1),
        ValueError,
        "Did you mean 'num_cpus'",
    ),
    "an argument that cannot be pickled": (
        lambda *_: echo.remote(threading.Lock()),
        TypeError,
        r"The culprit is args\[0\] \(a _thread.lock\)",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_its_remedy(mistake: str) -> None:
    make, kind, words = MISTAKES[mistake]
    reference, actor = echo.remote(), Actor.remote()
    with pytest.raises(kind, match=words):
        make(reference, actor)
    assert skate.get(reference) == 0
