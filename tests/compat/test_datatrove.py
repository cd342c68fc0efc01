"""datatrove runs the shards of a pipeline in Ray actors of a placement group each, and waits for them in turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.running import run_on_skate, skip_without

pytestmark = pytest.mark.frameworks

skip_without("datatrove", "orjson")


def test_datatrove_keeps_the_documents_that_it_keeps_alone(tmp_path: Path) -> None:
    report = run_on_skate("datatrove", tmp_path)
    assert report.result == report.expected
    assert len(report.result) == 50
