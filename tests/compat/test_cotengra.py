"""cotengra uses Ray as an executor of `concurrent.futures`, with functions and arrays that it puts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.running import run_on_skate, skip_without

pytestmark = pytest.mark.frameworks

skip_without("cotengra")


def test_cotengra_contracts_a_network_in_slices_as_einsum_does(tmp_path: Path) -> None:
    report = run_on_skate("cotengra", tmp_path)
    assert report.result == report.expected
    assert len(report.result) > 1
