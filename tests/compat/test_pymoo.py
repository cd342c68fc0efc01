"""pymoo evaluates each solution in a Ray task."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.running import run_on_skate

pytestmark = pytest.mark.frameworks


def test_pymoo_finds_the_front_that_it_finds_alone(tmp_path: Path) -> None:
    report = run_on_skate("pymoo", tmp_path)
    assert report.result == report.expected
    assert len(report.result) > 10
