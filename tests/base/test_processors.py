"""The number of usable CPUs, from affinity and from the quota of a container."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skate._base import processors


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(
    ("limit", "expected"),
    [("max 100000", 8), ("300000 100000", 3), ("50000 100000", 1), ("1600000 100000", 8)],
)
def test_a_quota_counts_as_whole_processors(
    limit: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text(f"{limit}\n")
    monkeypatch.setattr(processors, "_LIMIT", str(tmp_path / "cpu.max"))
    assert processors.cpus() == expected


@pytest.mark.usefixtures("eight")
def test_without_a_quota_affinity_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "_LIMIT", str(tmp_path / "missing"))
    assert processors.cpus() == 8
