"""Results that only the process knows which has submitted their tasks, until others need them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from skate._base.object_ref import ERROR, INLINE, PENDING, SHARED, CallbackOwner, ObjectRef
from skate._engine.local.client.hold_reports import HoldReports
from skate._engine.local.client.references import References
from skate._engine.local.client.request_channel import RequestChannel
from skate._engine.local.wire import messages as m

TASK = b"t" * 24
ID = TASK + b"\1\0\0\0"


class FakeProcess:
    """A process and its channel to the node."""

    def __init__(self) -> None:
        self.handlers: dict[type, Callable[[Any], None]] = {}
        self.sent: list[Any] = []
        self.asked = 0
        self.closed = ""
        self.hub = self
        self.reports = HoldReports()
        self.references = References(cast(CallbackOwner, self), cast(RequestChannel, self), self.reports)

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def wake(self) -> None:
        pass

    def ask(self, question: m.Question) -> None:
        self.asked += 1

    def reference_dropped(self, reference: ObjectRef[Any]) -> None:
        self.references.dropped(reference)

    def hear(self, message: Any) -> None:
        self.handlers[type(message)](message)


@pytest.fixture
def process() -> FakeProcess:
    return FakeProcess()


def test_a_value_that_nobody_else_needs_is_not_reported_to_the_node(process: FakeProcess) -> None:
    reference = process.references.expect_result(TASK)
    process.hear(m.Values([TASK], [b"value"]))
    assert (reference._state, reference._data) == (INLINE, b"value")
    del reference
    assert process.sent == []
    assert not process.reports.dropped


def test_a_value_is_registered_when_its_reference_leaves_the_process(process: FakeProcess) -> None:
    reference = process.references.expect_result(TASK)
    process.hear(m.Values([TASK], [b"value"]))
    process.references.promote(reference)
    assert process.sent == [m.Register(ID, INLINE, b"value")]


def test_a_value_follows_a_reference_that_left_before_it_was_ready(process: FakeProcess) -> None:
    reference = process.references.expect_result(TASK)
    process.references.promote(reference)
    process.hear(m.Values([TASK], [b"value"]))
    assert process.sent == [m.Register(ID, PENDING, follows=True), m.Register(ID, INLINE, b"value")]


def test_an_error_follows_a_reference_that_left_before_it_was_ready(process: FakeProcess) -> None:
    reference = process.references.expect_result(TASK)
    process.references.promote(reference)
    process.hear(m.PrivateResult(TASK, m.Result(ERROR, b"error")))
    assert process.sent[1:] == [m.Register(ID, ERROR, b"error")]
    assert process.references.errors == 1


def test_a_value_that_the_node_has_as_well_is_not_sent_back_to_it(process: FakeProcess) -> None:
    reference = process.references.expect_result(TASK)
    process.references.promote(reference)
    process.hear(m.PrivateResult(TASK, m.Result(INLINE, b"value"), registered=True))
    assert reference._state == INLINE
    assert len(process.sent) == 1


def test_a_large_value_is_released_with_its_last_reference(process: FakeProcess) -> None:
    reference = process.references.expect_result(TASK)
    process.hear(m.PrivateResult(TASK, m.Result(SHARED, segment="s", size=5), registered=True))
    assert reference._state == SHARED
    assert process.references.find(ID) is reference
    del reference
    assert ID in process.reports.dropped


def test_a_large_value_whose_reference_was_dropped_is_released_on_arrival(process: FakeProcess) -> None:
    process.references.expect_result(TASK)
    process.hear(m.PrivateResult(TASK, m.Result(SHARED, segment="s", size=5), registered=True))
    assert ID in process.reports.dropped


def test_callbacks_are_called_when_a_value_arrives(process: FakeProcess) -> None:
    reference = process.references.expect_result(TASK)
    called: list[ObjectRef[Any]] = []
    process.references.when_ready(reference, called.append)
    process.hear(m.Values([TASK], [b"value"]))
    assert called == [reference]


def test_expected_results_fail_when_the_session_ends(process: FakeProcess) -> None:
    reference = process.references.expect_result(TASK)
    process.references.fail_expected(b"error")
    assert (reference._state, reference._data) == (ERROR, b"error")
    process.hear(m.Values([TASK], [b"too late"]))
    assert reference._data == b"error"


def test_a_process_that_ends_waits_for_results_that_others_need(process: FakeProcess) -> None:
    reference = process.references.expect_result(TASK)
    process.references.hand_over()
    assert process.asked == 0, "nobody else needs it"
    process.references.promote(reference)
    process.references.hand_over()
    assert process.asked == 1


def test_results_of_a_call_that_was_given_up_are_released(process: FakeProcess) -> None:
    results = [
        m.Result(SHARED, segment="s"),
        m.Result(INLINE, b"value"),
        m.Result(INLINE, b"v", contains=[ID]),
    ]
    process.references.decline(TASK, results)
    assert sorted(id[24] for id in process.reports.dropped) == [1, 3]


def test_objects_that_only_this_process_knows_are_reported_on_request(process: FakeProcess) -> None:
    pending = process.references.expect_result(TASK)
    small = process.references.own_reference(b"s" * 28)
    process.references.settle(small, INLINE, b"value")
    known = process.references.expect_result(b"k" * 24)
    process.references.promote(known)
    process.hear(m.SendObjects(3))
    report = process.sent[-1]
    assert report.request == 3
    assert sorted(report.rows) == sorted([(ID, PENDING, 0), (small._id, INLINE, 5)])
    assert pending._state == PENDING
