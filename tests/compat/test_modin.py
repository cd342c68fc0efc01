"""Modin keeps the partitions of a frame as Ray objects, and works on them in Ray tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.running import run_on_skate

pytestmark = pytest.mark.frameworks


def test_modin_merges_groups_and_sorts_as_pandas_does(tmp_path: Path) -> None:
    report = run_on_skate("modin", tmp_path)
    assert report.result == report.expected
    by_region, largest = report.result
    assert (len(by_region), len(largest)) == (4, 10)
