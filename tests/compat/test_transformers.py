"""transformers runs a search with `tune.run`, and reports to it from the evaluations of its trainer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.running import SEARCH_TIMEOUT_S, run_on_skate, skip_without

skip_without("transformers", "accelerate")
pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(300)]


def test_transformers_finds_the_best_learning_rate(tmp_path: Path) -> None:
    report = run_on_skate("transformers", tmp_path, SEARCH_TIMEOUT_S, preload="transformers.trainer")
    assert report.result["rates"] == report.expected["rates"]
    assert report.result["best"] == report.expected["best"] > 0.9
    assert report.result["rate"] > 1e-5
    assert max(report.result["epochs"]) == 3
    assert report.result["checkpoints"] == 3
