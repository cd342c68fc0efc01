from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from skate._base import memory

GIB = 1 << 30


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 64 GiB, 48 of them free, and folders of control groups that a test fills."""
    (tmp_path / "groups").mkdir()
    monkeypatch.setattr(memory, "_ROOT", str(tmp_path / "groups"))
    monkeypatch.setattr(memory, "_OWN", str(tmp_path / "own"))
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 64 * GIB // 4096}.__getitem__)
    available = psutil.virtual_memory()._replace(available=48 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: available)
    return tmp_path / "groups"


def fill(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_without_groups_the_machine_is_the_limit(groups: Path) -> None:
    assert memory.total() == 64 * GIB
    assert memory.free() == 48 * GIB


@pytest.mark.parametrize("version", [1, 2])
def test_a_group_limits_what_there_is_and_what_is_free(groups: Path, version: int) -> None:
    if version == 2:
        fill(groups, memory__max=4 * GIB, memory__current=3 * GIB)
        fill(groups, memory__stat=f"anon 5\ninactive_file {GIB}")
    else:
        fill(groups / "memory", memory__limit_in_bytes=4 * GIB, memory__usage_in_bytes=3 * GIB)
        fill(groups / "memory", memory__stat=f"cache 7\ntotal_inactive_file {GIB}")
    assert memory.total() == 4 * GIB
    assert memory.free() == 2 * GIB, "pages of files that were read once are given back when they are needed"


@pytest.mark.parametrize("line", ["0::/a/b", "4:cpu,memory:/a/b"])
def test_the_tightest_of_the_groups_around_a_process_counts(groups: Path, line: str) -> None:
    (groups.parent / "own").write_text(f"1:pids:/elsewhere\n{line}\n")
    first = line.startswith("0")
    root = groups if first else groups / "memory"
    limit, used = (
        ("memory__max", "memory__current") if first else ("memory__limit_in_bytes", "memory__usage_in_bytes")
    )
    fill(root / "a", **{limit: 2 * GIB, used: GIB})
    fill(root / "a" / "b", **{limit: 3 * GIB, used: GIB // 2})
    assert memory.total() == 2 * GIB
    assert memory.free() == GIB


def test_a_group_without_a_limit_limits_nothing(groups: Path) -> None:
    fill(groups, memory__max="max", memory__current=60 * GIB)
    assert memory.total() == 64 * GIB
    assert memory.free() == 48 * GIB


def test_a_group_that_is_full_leaves_nothing(groups: Path) -> None:
    fill(groups, memory__max=GIB, memory__current=2 * GIB)
    assert memory.free() == 0


def test_usage_is_that_of_the_machine_or_of_the_fullest_group(
    groups: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = tmp_path / "meminfo"
    monkeypatch.setattr(memory, "_MACHINE", str(machine))
    total = psutil.virtual_memory().total
    assert memory.usage() == (total - 48 * GIB, total, "")  # macOS: from psutil
    machine.write_text(f"MemTotal: {64 << 20} kB\nMemFree: 1 kB\nMemAvailable: {48 << 20} kB\n")
    assert memory.usage() == (16 * GIB, 64 * GIB, "")
    fill(groups, memory__max=4 * GIB, memory__current=3 * GIB, memory__stat=f"inactive_file {GIB}")
    assert memory.usage() == (2 * GIB, 4 * GIB, str(groups))
    fill(groups, memory__max=4 * GIB, memory__current=GIB // 2)
    assert memory.usage() == (16 * GIB, 64 * GIB, "")
    fill(groups, memory__max="max", memory__current=3 * GIB)
    assert memory.usage() == (16 * GIB, 64 * GIB, "")
