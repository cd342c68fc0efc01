"""neuralforecast's Auto models run a Tuner, and report to it from a Lightning callback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.running import SEARCH_TIMEOUT_S, run_on_skate, skip_without

skip_without("neuralforecast")
pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(300)]


def test_neuralforecast_fits_the_best_of_its_trials(tmp_path: Path) -> None:
    report = run_on_skate("neuralforecast", tmp_path, SEARCH_TIMEOUT_S)
    assert report.result["learning rate"] == report.expected
    assert len(report.result["reports"]) == 4
    assert min(report.result["reports"]) < max(report.result["reports"]) == 4
    assert report.result["forecasts"] == 6
