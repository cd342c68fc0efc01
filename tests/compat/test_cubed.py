"""Cubed runs the plan of a chunked array as Ray tasks, under asyncio."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.running import run_on_skate

pytestmark = pytest.mark.frameworks


def test_cubed_standardises_an_array_as_numpy_does(tmp_path: Path) -> None:
    report = run_on_skate("cubed", tmp_path)
    assert len(report.result) == 400
    assert report.result == report.expected
