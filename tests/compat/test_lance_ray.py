"""lance-ray is a data source and a sink of Ray Data, and works on fragments in a pool of Ray actors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.running import run_on_skate, skip_without

pytestmark = pytest.mark.frameworks

skip_without("lance_ray")


def test_lance_ray_writes_a_table_adds_columns_and_reads_rows(tmp_path: Path) -> None:
    report = run_on_skate("lance_ray", tmp_path)
    assert report.result == report.expected
    assert len(report.result) == 40
