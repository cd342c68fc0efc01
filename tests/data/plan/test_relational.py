"""Plans that threads of this process run, as long as their rows fit in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from skate._base import memory
from skate.data import DataContext
from skate.data._plan import relational

MIB = 1 << 20


def test_a_container_that_has_little_memory_left_gets_small_plans_only(
    settings: DataContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.relational_plan_bytes = 1 << 50
    (tmp_path / "memory.max").write_text(f"{100 * MIB}\n")
    (tmp_path / "memory.current").write_text(f"{20 * MIB}\n")
    monkeypatch.setattr(memory, "_ROOT", str(tmp_path))
    assert relational.max_source_bytes(settings) == 10 * MIB, "an eighth of what is left"
    settings.relational_plan_bytes = MIB
    assert relational.max_source_bytes(settings) == MIB
