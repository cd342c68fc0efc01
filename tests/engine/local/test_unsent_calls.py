"""Calls that a process has not sent yet, as it reports them for the detection of deadlocks."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

from skate._base.object_ref import INLINE, PENDING, ObjectRef
from skate._engine.local.client.actor_connection import ActorLink, LinkTable, PendingCall
from skate._engine.local.client.client import Client
from skate._engine.local.client.wait_reports import OutstandingCalls
from skate._engine.local.wire import messages as m

ACTOR = b"a" * 16


def reference(number: int, state: int) -> ObjectRef[Any]:
    made: ObjectRef[Any] = ObjectRef.__new__(ObjectRef)
    made._id = bytes([number]) * 28
    made._state = state
    made._known = False
    made._engine = None
    return made


def waiting(number: int, *needs: ObjectRef[Any]) -> PendingCall:
    call = PendingCall.__new__(PendingCall)
    call.call = cast(m.Call, type("Call", (), {"task": bytes([number])}))
    call.dependencies = [(index, each) for index, each in enumerate(needs)]
    return call


def unsent(*calls: PendingCall, unordered: bool = False) -> list[tuple[bytes, list[bytes], list[bytes]]]:
    link = ActorLink(cast(Client, None), ACTOR, cast(LinkTable, None))
    link.unordered = unordered
    link._waiting = deque(calls)
    outstanding = OutstandingCalls()
    link.list_calls(outstanding)
    return outstanding.unsent


def test_a_call_that_only_waits_for_its_connection_needs_no_object_of_a_later_call() -> None:
    ready, pending = reference(1, INLINE), reference(2, PENDING)
    assert unsent(waiting(1, ready), waiting(2, pending)) == [(ACTOR, [b"\x01", b"\x02"], [])]


def test_later_calls_wait_for_the_objects_of_the_first() -> None:
    first, second = reference(1, PENDING), reference(2, PENDING)
    assert unsent(waiting(1, first, first), waiting(2, second)) == [(ACTOR, [b"\x01", b"\x02"], [first._id])]


def test_calls_that_may_overtake_each_other_wait_for_their_own_objects() -> None:
    ready, pending = reference(1, INLINE), reference(2, PENDING)
    assert unsent(waiting(1, pending), waiting(2, ready), unordered=True) == [
        (ACTOR, [b"\x01"], [pending._id]),
        (ACTOR, [b"\x02"], []),
    ]


def test_no_call_means_no_entry() -> None:
    assert unsent() == []
    assert unsent(unordered=True) == []
