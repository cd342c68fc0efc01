"""The progress display of a run."""

from __future__ import annotations

import io

import pytest

from skate._api.progress import View
from skate._api.progress.display import SWITCH
from skate._api.progress.terminal import render_lines
from skate.train._views import run_progress
from skate.train._views.run_progress import Rates, RunProgress, show


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time as the progress sees it, to be set."""
    now = [100.0]
    monkeypatch.setattr(run_progress.time, "perf_counter", lambda: now[0])
    return now


def printed(view: View) -> list[str]:
    return [line.rstrip() for line, _ in render_lines([view], io.StringIO(), 121)]


def trained(clock: list[float], *, ranks: int = 2) -> RunProgress:
    """Return a run of eleven reports, one in each half second, that counts steps and tokens."""
    progress = RunProgress("run", state="2 workers train")
    for step in range(11):
        for rank in range(ranks):
            metrics = {"step": step, "loss": 1 / (step + 1 + rank), "tokens": step * 4096.0}
            progress.reported(rank, metrics, rows=step * 8)
        clock[0] += 0.5
    return progress


def test_one_line_has_the_last_report_and_how_fast_all_workers_are_together(clock: list[float]) -> None:
    title, head, row = printed(trained(clock).view())
    assert title == "run  5s  2 workers train  checkpoint: none yet"
    assert head.split() == ["reports", "step", "loss", "tokens", "steps/s", "rows/s", "tokens/s"]
    assert row.split() == ["11", "10", "0.09091", "4.096e+04", "2", "32", "16.4k"]


def test_each_worker_has_a_line_when_it_is_asked_for(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "ranks")
    _, head, first, second, together = printed(trained(clock).view())
    assert head.split()[:3] == ["rank", "reports", "step"]
    assert first.split()[::3] == ["0", "0.09091", "16"]
    assert second.split()[::3] == ["1", "0.08333", "16"]
    assert together.split() == ["all", "2", "32", "16.4k"]


def test_the_title_tells_of_checkpoints_and_failures(clock: list[float]) -> None:
    progress = RunProgress("run", failures=1, checkpoint="checkpoint_000003")
    progress.reported(0, {}, storing="checkpoint_000004")
    clock[0] += 3723
    title = printed(progress.view())[0]
    assert title == (
        "run  1h 02m  starting  checkpoint: checkpoint_000003, storing checkpoint_000004  failures: 1"
    )
    progress.checkpoint, progress.lost = "checkpoint_000004", 2
    assert "checkpoint: checkpoint_000004, 2 lost" in printed(progress.view())[0]


def test_a_loss_that_is_no_number_is_shown_as_such_and_a_long_text_is_cut(clock: list[float]) -> None:
    progress = RunProgress("run")
    progress.reported(0, {"loss": float("nan"), "note": "a text that is too long for the table"})
    row = printed(progress.view())[-1]
    assert row.split()[1] == "nan"
    assert row.endswith("a text that is too …")
    assert "loss is nan" in progress.view().alerts


def test_without_counters_the_reports_are_counted(clock: list[float]) -> None:
    progress = RunProgress("run")
    for _ in range(3):
        progress.reported(0, {"loss": 1.0})
        clock[0] += 0.25
    assert printed(progress.view())[1].split() == ["reports", "loss", "reports/s"]
    assert printed(progress.view())[2].split() == ["3", "1", "4"]


def test_workers_that_start_again_count_anew(clock: list[float]) -> None:
    progress = trained(clock, ranks=1)
    progress.attempt_started()
    progress.reported(0, {"step": 3, "loss": 0.5})
    assert "steps/s" not in printed(progress.view())[1]


def test_what_goes_down_is_no_counter() -> None:
    rates = Rates()
    for at, tokens in enumerate([512, 480, 300]):
        rates.add(float(at), {"tokens": tokens})
    assert rates.per_second() == {"reports": 1.0}


def test_a_log_gets_the_values_and_rates_in_one_line(clock: list[float]) -> None:
    assert trained(clock).view().line() == (
        "run: 5s, 2 workers train, checkpoint: none yet, reports 11, step 10, loss 0.09091, tokens 4.096e+04, "
        "2 steps/s, 32 rows/s, 16.4k tokens/s"
    )


def test_nothing_is_shown_if_it_is_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")
    assert show(RunProgress("run")) is None
