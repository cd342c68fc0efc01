"""DeepHyper awaits Ray tasks for its trials, and keeps them in a named actor that tasks look up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.running import run_on_skate

pytestmark = pytest.mark.frameworks


def test_deephyper_tries_as_many_points_as_it_is_asked_for(tmp_path: Path) -> None:
    report = run_on_skate("deephyper", tmp_path)
    assert len(report.result) == 20
    assert report.result == report.expected
