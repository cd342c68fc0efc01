"""Shared objects that a process reads: located by the node, mapped once, released when no reference is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from skate._base.object_ref import ObjectRef
from skate._engine.local.client.mappings import MAX_IDLE_PINS, Mappings
from skate._engine.local.client.references import References
from skate._engine.local.client.request_channel import RequestChannel
from skate._engine.local.session.folders import Session
from skate._engine.local.session.shared_memory import SegmentFiles, SegmentMapping
from skate._engine.local.wire import messages as m

ID = b"i" * 28


class FakeProcess:
    """A process whose node answers when the test requests it."""

    def __init__(self) -> None:
        self.handlers: dict[type, Callable[[Any], None]] = {}
        self.sent: list[Any] = []
        self.let_go: list[bytes] = []
        self.closed = ""
        self.is_held = True
        self.hub = self
        self.on_wait: Callable[[], None] = lambda: None

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def attend(self, until: Callable[[], bool]) -> bool:
        self.on_wait()
        assert until(), "this would wait forever"
        return True

    def release_pin(self, id: bytes) -> None:
        self.let_go.append(id)

    def has(self, id: bytes) -> bool:
        return self.is_held

    def locate(self, segment: str = "", error: bytes = b"") -> None:
        self.handlers[m.Located](m.Located(ID, segment, 5, error))


@pytest.fixture
def process() -> FakeProcess:
    return FakeProcess()


@pytest.fixture
def mappings(process: FakeProcess, tmp_path: Path) -> Mappings:
    (tmp_path / "segment").write_bytes(b"value")
    channel, references = cast(RequestChannel, process), cast(References, process)
    return Mappings(channel, references, SegmentFiles(Session(str(tmp_path), str(tmp_path))))


@pytest.fixture
def reference() -> ObjectRef[Any]:
    made: ObjectRef[Any] = ObjectRef.__new__(ObjectRef)
    made._id = ID
    made._engine = None
    made._known = False
    return made


def test_an_object_is_asked_for_and_mapped(
    process: FakeProcess, mappings: Mappings, reference: ObjectRef[Any]
) -> None:
    assert mappings.take(reference) is None
    process.on_wait = lambda: process.locate("segment")
    mappings.locate([reference])
    found = mappings.take(reference)
    assert isinstance(found, SegmentMapping)
    assert bytes(found) == b"value"
    assert mappings.take(reference) is found
    assert [pin.ids for pin in process.sent] == [[ID]]


def test_two_threads_ask_for_an_object_once(
    process: FakeProcess, mappings: Mappings, reference: ObjectRef[Any]
) -> None:
    def wait_too() -> None:
        process.on_wait = lambda: process.locate("segment")
        mappings.locate([reference])

    process.on_wait = wait_too
    mappings.locate([reference])
    assert len(process.sent) == 1
    assert isinstance(mappings.take(reference), SegmentMapping)


def test_an_object_that_is_not_mapped_any_more_is_mapped_again_without_a_question(
    process: FakeProcess, mappings: Mappings, reference: ObjectRef[Any]
) -> None:
    process.locate("segment")
    assert isinstance(mappings.take(reference), SegmentMapping)  # and gone again
    mappings.locate([reference])
    assert isinstance(mappings.take(reference), SegmentMapping)
    mappings.release_dropped()
    assert process.let_go == process.sent == []


def test_an_object_that_is_not_mapped_any_more_is_let_go_of_with_its_last_reference(
    process: FakeProcess, mappings: Mappings, reference: ObjectRef[Any]
) -> None:
    process.locate("segment")
    mappings.take(reference)
    process.is_held = False
    mappings.release_dropped()
    assert process.let_go == [ID]
    assert mappings.take(reference) is None


def test_objects_that_are_not_mapped_any_more_are_let_go_of_when_memory_is_short(
    process: FakeProcess, mappings: Mappings, reference: ObjectRef[Any]
) -> None:
    process.locate("segment")
    held = mappings.take(reference)
    mappings.release_idle()
    assert process.let_go == []
    del held
    mappings.release_idle()
    assert process.let_go == [ID]


def test_not_too_many_objects_stay_pinned_that_are_not_mapped(
    process: FakeProcess, mappings: Mappings, reference: ObjectRef[Any]
) -> None:
    for number in range(MAX_IDLE_PINS + 3):
        reference._id = number.to_bytes(28, "big")
        process.handlers[m.Located](m.Located(reference._id, "segment", 5))
        mappings.take(reference)
    mappings.release_dropped()
    assert process.let_go == [number.to_bytes(28, "big") for number in range(3)]


def test_an_object_that_is_not_mapped_any_more_and_pinned_again_is_pinned_once(
    process: FakeProcess, mappings: Mappings, reference: ObjectRef[Any]
) -> None:
    process.locate("segment")
    mappings.take(reference)
    mappings.release_dropped()
    process.locate("segment")
    assert process.let_go == [ID]
    assert isinstance(mappings.take(reference), SegmentMapping)


def test_an_object_that_is_pinned_twice_is_let_go_of_once(
    process: FakeProcess, mappings: Mappings, reference: ObjectRef[Any]
) -> None:
    process.locate("segment")
    process.locate("segment")
    assert process.let_go == [ID]
    found = mappings.take(reference)
    process.locate("segment")
    assert process.let_go == [ID, ID]
    assert isinstance(found, SegmentMapping)


def test_an_error_lets_go_of_nothing(process: FakeProcess, mappings: Mappings) -> None:
    process.locate("segment")
    process.locate(error=b"freed")
    assert process.let_go == []
    mappings.tidy()
    assert process.let_go == [ID]


def test_an_error_is_told_once_and_replaced_by_a_later_answer(
    process: FakeProcess, mappings: Mappings, reference: ObjectRef[Any]
) -> None:
    process.locate(error=b"no room")
    assert mappings.take(reference) == b"no room"
    assert mappings.take(reference) is None
    process.locate(error=b"no room")
    process.locate("segment")
    assert isinstance(mappings.take(reference), SegmentMapping)


def test_what_comes_after_the_wait_was_interrupted_is_let_go_of(
    process: FakeProcess, mappings: Mappings, reference: ObjectRef[Any]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    process.on_wait = interrupt
    with pytest.raises(KeyboardInterrupt):
        mappings.locate([reference])
    process.locate("segment")
    assert process.let_go == [ID]


def test_what_was_pinned_for_tasks_that_are_not_run_is_let_go_of(
    process: FakeProcess, mappings: Mappings, reference: ObjectRef[Any]
) -> None:
    process.locate("segment")
    mappings.tidy()
    assert process.let_go == [ID]
    assert mappings.take(reference) is None
