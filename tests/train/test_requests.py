"""The controller's answers to workers that request reported checkpoints; the test advances the clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from skate.train._reports.messages import CHECKPOINTS, Request
from skate.train._reports.report_ledger import ReportLedger
from skate.train._run import requests
from skate.train._run.requests import Requests


class Story:
    """Two workers, of which rank 0 makes requests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ledger = ReportLedger(2)
        self.now = 0.0
        self.replies: list[int] = []
        monkeypatch.setattr(requests.time, "monotonic", lambda: self.now)
        run_state: Any = SimpleNamespace(ledger=self.ledger, checkpoints=list, pending=[])
        self.requests = Requests(
            run_state, 2, lambda rank, number, value: self.replies.append(number), validates=False
        )

    def report(self, rank: int, times: int = 1, name: str | None = None) -> None:
        for _ in range(times):
            self.ledger.reported(rank, {}, name)

    def request(self, number: int) -> None:
        self.requests.received(0, Request(number, CHECKPOINTS, (False, None)))

    def pass_time(self) -> None:
        assert self.requests.wake_at is not None
        self.now = self.requests.wake_at
        self.requests.poll()


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> Story:
    return Story(monkeypatch)


def test_who_asks_is_answered_when_all_have_reported_as_often(story: Story) -> None:
    story.report(0, times=3)
    story.request(1)
    story.report(1, times=2)
    story.requests.poll()
    assert story.replies == []
    story.report(1)
    story.requests.poll()
    assert story.replies == [1]


def test_what_comes_late_is_stored_before_the_answer(story: Story) -> None:
    story.report(0, times=3)
    story.request(1)
    story.report(1, times=2)
    story.report(1, name="late")
    story.requests.poll()
    assert story.replies == []
    story.ledger.stored(1, 2)
    story.requests.poll()
    assert story.replies == [1]


def test_one_that_does_not_report_is_waited_for_once(story: Story) -> None:
    story.report(0, times=3)
    story.request(1)
    story.pass_time()
    assert story.replies == [1]
    story.report(0)
    story.request(2)
    assert story.replies == [1, 2]
    assert story.requests.wake_at is None


def test_one_that_reports_again_is_waited_for_again(story: Story) -> None:
    story.report(0, times=3)
    story.request(1)
    story.pass_time()
    story.report(1)
    story.request(2)
    assert story.replies == [1]
    story.ledger.ended(1)
    story.requests.poll()
    assert story.replies == [1, 2]
