from __future__ import annotations

from typing import Any

from skate._engine.local.client.hold_reports import MAX_RELEASED, HoldReports
from skate._engine.local.wire import messages as m


def test_many_releases_are_reported_in_parts() -> None:
    reports = HoldReports()
    dropped = [number.to_bytes(4, "little") for number in range(2 * MAX_RELEASED + 1)]
    reports.dropped.update(dict.fromkeys(dropped))
    posted: list[Any] = []
    assert [reports.post_all(posted.append) for _ in range(3)] == [False, False, True]
    assert [len(message.ids) for message in posted] == [MAX_RELEASED, MAX_RELEASED, 1]
    assert {id for message in posted for id in message.ids} == set(dropped)


def test_holds_are_reported_before_releases_and_all_at_once() -> None:
    reports = HoldReports()
    held = [number.to_bytes(4, "little") for number in range(2 * MAX_RELEASED)]
    reports.holds.update(dict.fromkeys(held))
    reports.dropped[b"gone"] = None
    posted: list[Any] = []
    assert reports.post_all(posted.append)
    assert [type(message) for message in posted] == [m.Hold, m.Release]
    assert set(posted[0].ids) == set(held)
