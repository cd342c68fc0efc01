"""FLAML's own search algorithms are searchers of Ray Tune; its AutoML sends the data to trials once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.running import SEARCH_TIMEOUT_S, run_on_skate, skip_without

skip_without("flaml")
pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(300)]


def test_flaml_searches_in_trials_that_a_scheduler_stops(tmp_path: Path) -> None:
    report = run_on_skate("flaml", tmp_path, SEARCH_TIMEOUT_S, preload="flaml.tune")
    assert len(report.result["losses"]) == 12
    assert report.result["losses"] == report.expected
    assert report.result["best"] == min(report.expected)
    assert min(report.result["steps"]) < max(report.result["steps"]) == 4


def test_flaml_finds_a_model_for_digits(tmp_path: Path) -> None:
    report = run_on_skate("flaml_automl", tmp_path, SEARCH_TIMEOUT_S, preload="flaml,lightgbm")
    assert report.result["trials"] == report.expected["trials"] == 8
    assert report.result["best loss"] == report.expected["best loss"]
    assert report.result["accuracy"] > 0.5
