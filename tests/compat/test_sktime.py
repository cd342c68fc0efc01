"""sktime evaluates the folds of a back-test in Ray tasks, in a session that it starts and ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.running import run_on_skate

pytestmark = pytest.mark.frameworks


def test_sktime_measures_the_errors_that_it_measures_alone(tmp_path: Path) -> None:
    report = run_on_skate("sktime", tmp_path)
    assert len(report.result) == 6
    assert report.result == report.expected
