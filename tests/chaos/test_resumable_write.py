"""A write with `resume=True` whose workers and whose program are killed at random moments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.chaos import attacks
from tests.chaos.arena import Arena

KILLS = 50
MOST_RUNS = 60
SECONDS = 300.0  # that one program may take on a loaded machine


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """Return all rows that were written, in the order of the names of files."""
    return [row for path in sorted(folder.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


@pytest.mark.chaos
@pytest.mark.timeout(3600)  # up to MOST_RUNS programs, each with a limit of its own
@pytest.mark.parametrize("kind", ["tasks", "actors"])
def test_random_kills_of_workers_and_of_the_program_change_no_row(
    kind: str, arena: Arena, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fifty kills of workers, and one of the program after every few of them: the rows are those of no kill."""
    killed = failed = 0
    for seed in range(MOST_RUNS):
        driver = arena.start("resumable_write.py", tmp_path, kind, seed)
        code = driver.wait(SECONDS)
        output = driver.output()
        driver.wait_all_gone()
        if code == 0:
            break
        # A task whose worker dies too often fails, and the program with it: it goes on like one that was killed.
        assert code < 0 or "WorkerCrashedError" in output or "ActorDied" in output, output
        killed += code < 0
        failed += code > 0
        seen = [row["id"] for row in rows_in(tmp_path / "out")]
        assert len(seen) == len(set(seen)), "no row is there twice, at any time"
    assert code == 0, output
    workers = (tmp_path / "kills").stat().st_size
    attacks.record(workers + killed)
    more = (lambda i: {"cube": i**3}) if kind == "actors" else (lambda i: {})
    assert rows_in(tmp_path / "out") == [{"id": i, "square": i**2, **more(i)} for i in range(1000)]
    assert workers >= KILLS
    assert killed
    assert sorted(path.name for path in (tmp_path / "out" / "_skate").iterdir()) == [
        "finished.json",
        "job.json",
        "lock",
    ]
    with capsys.disabled():
        print(f"\n{kind}: {workers} workers killed, {killed} programs killed, {failed} failed")
