"""Hamilton (apache-hamilton) runs its graphs on Ray with an adapter and an executor."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.running import run_on_skate

pytestmark = pytest.mark.frameworks


def test_hamilton_computes_features_and_shards_in_workers(tmp_path: Path) -> None:
    report = run_on_skate("hamilton", tmp_path)
    assert report.result == report.expected
    *features, first_shard, _, _, _, _, last_shard = report.result
    assert [len(column) for column in features] == [100, 100]
    assert (first_shard, last_shard) == (499_500, 5_499_500)
