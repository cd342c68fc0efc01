"""Many random schedules of the engine for language models."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests.llm.engine.test_random_schedules import run_schedules


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("ahead", [False, True], ids=["one step at a time", "one step ahead"])
def test_ten_thousand_schedules_change_no_token(ahead: bool) -> None:
    run_schedules(10_000, ahead=ahead)
