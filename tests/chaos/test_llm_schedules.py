"""Many random schedules of the engine for language models."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests.llm.engine.test_random_schedules import KINDS, Kind, run_schedules


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_schedules_change_no_token(kind: Kind) -> None:
    run_schedules(range(10_000), kind)
