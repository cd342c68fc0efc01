"""The reader's end of generators."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from skate._base.object_ref import ERROR, INLINE
from skate._engine.local.client.client import Client
from skate._engine.local.client.stream import TaskStream
from skate._engine.local.wire import messages as m
from tests.engine.local.test_private_results import TASK, FakeProcess


def make_stream() -> TaskStream:
    process = FakeProcess()
    client = SimpleNamespace(references=process.references, channel=process)
    return TaskStream(cast(Client, client), TASK, 0, lambda _: None)


def states(stream: TaskStream) -> list[int]:
    """Take all items of a generator that has ended; return their states."""
    taken: list[Any] = []
    while not stream.finished():
        assert stream.ready(), "the reader would wait forever"
        taken.append(stream.next(0))
    return [reference._state for reference in taken]


def test_a_generator_that_fails_ends_with_an_error() -> None:
    stream = make_stream()
    stream.item(1, m.Result(INLINE, b"1"))
    stream.failed(b"error")
    assert states(stream) == [INLINE, ERROR]


def test_the_error_takes_the_place_of_an_item_that_was_overtaken_and_lost() -> None:
    stream = make_stream()
    stream.item(1, m.Result(INLINE, b"1"))
    stream.item(3, m.Result(INLINE, b"3"))
    stream.failed(b"error")
    assert states(stream) == [INLINE, ERROR]


def test_a_generator_that_fails_after_its_items_were_taken_ends_with_an_error() -> None:
    stream = make_stream()
    stream.item(1, m.Result(INLINE, b"1"))
    assert stream.next(0) is not None
    stream.failed(b"error")
    assert states(stream) == [ERROR]
