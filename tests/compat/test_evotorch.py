"""EvoTorch evaluates a population with a pool of Ray actors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.running import run_on_skate

pytestmark = pytest.mark.frameworks


def test_evotorch_searches_with_two_actors_as_it_does_alone(tmp_path: Path) -> None:
    report = run_on_skate("evotorch", tmp_path)
    assert report.result == report.expected
    assert report.result < 1e-3
    assert len(report.pids) == 2
