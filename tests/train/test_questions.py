"""When whoever drives a run answers a worker that asks for checkpoints; the clock is the test's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from skate.train._reports.ledger import Ledger
from skate.train._reports.messages import CHECKPOINTS, Asked
from skate.train._run import questions
from skate.train._run.questions import Questions


class Story:
    """Two workers, of which rank 0 asks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ledger = Ledger(2)
        self.now = 0.0
        self.answers: list[int] = []
        monkeypatch.setattr(questions.time, "monotonic", lambda: self.now)
        journal: Any = SimpleNamespace(ledger=self.ledger, checkpoints=list, pending=[])
        self.questions = Questions(
            journal, 2, lambda rank, number, value: self.answers.append(number), validates=False
        )

    def report(self, rank: int, times: int = 1, name: str | None = None) -> None:
        for _ in range(times):
            self.ledger.announced(rank, {}, name)

    def ask(self, number: int) -> None:
        self.questions.asked(0, Asked(number, CHECKPOINTS, (False, None)))

    def pass_time(self) -> None:
        assert self.questions.due is not None
        self.now = self.questions.due
        self.questions.look()


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> Story:
    return Story(monkeypatch)


def test_who_asks_is_answered_when_all_have_reported_as_often(story: Story) -> None:
    story.report(0, times=3)
    story.ask(1)
    story.report(1, times=2)
    story.questions.look()
    assert story.answers == []
    story.report(1)
    story.questions.look()
    assert story.answers == [1]


def test_what_comes_late_is_stored_before_the_answer(story: Story) -> None:
    story.report(0, times=3)
    story.ask(1)
    story.report(1, times=2)
    story.report(1, name="late")
    story.questions.look()
    assert story.answers == []
    story.ledger.stored(1, 2)
    story.questions.look()
    assert story.answers == [1]


def test_one_that_does_not_report_is_waited_for_once(story: Story) -> None:
    story.report(0, times=3)
    story.ask(1)
    story.pass_time()
    assert story.answers == [1]
    story.report(0)
    story.ask(2)
    assert story.answers == [1, 2]
    assert story.questions.due is None


def test_one_that_reports_again_is_waited_for_again(story: Story) -> None:
    story.report(0, times=3)
    story.ask(1)
    story.pass_time()
    story.report(1)
    story.ask(2)
    assert story.answers == [1]
    story.ledger.ended(1)
    story.questions.look()
    assert story.answers == [1, 2]
