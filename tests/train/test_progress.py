"""What the terminal shows of a run."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from skate.air import _live
from skate.train._progress import Standing, shown


def printed(lines: Any) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=100).print(lines)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_each_worker_has_a_line_with_its_last_report() -> None:
    standing = Standing("run", state="2 workers train", checkpoint="checkpoint_000003", failures=1)
    standing.heard(1, {"loss": 0.123456, "note": "a text that is too long for the table"})
    standing.heard(0, {"loss": 1.0})
    standing.heard(0, {"loss": 0.5, "tokens": 12})
    title, head, first, second = printed(standing.lines())
    assert title.startswith("run: 2 workers train")
    assert title.endswith("checkpoint: checkpoint_000003  failures: 1")
    assert head.split() == ["rank", "reports", "reports/s", "loss", "note", "tokens"]
    assert first.split()[:2] == ["0", "2"]
    assert first.split()[3:] == ["0.5", "12"]
    assert second.split()[3] == "0.1235"
    assert "…" in second


def test_nothing_is_shown_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(Standing("run")) is None  # pytest has taken the terminal
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert _live.wanted()
    monkeypatch.setenv(_live.SWITCH, "0")
    assert not _live.wanted()
