"""Daft's Ray runner drives its engine with asyncio actors that stream partitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.running import run_on_skate

pytestmark = pytest.mark.frameworks


def test_daft_joins_groups_sorts_and_calls_objects_in_actors(tmp_path: Path) -> None:
    report = run_on_skate("daft", tmp_path)
    assert report.result == report.expected
    assert report.result["region"] == [0, 1, 2]
