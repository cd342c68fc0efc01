"""Disks that are full, and lines that were half written: the run goes on, and what was kept before is valid."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skate import train
from skate.train import Checkpoint, CheckpointConfig, Result, RunConfig, UserCallback
from skate.train._storage.run_folder import HISTORY, RECORD, Storage
from skate.train.collective import barrier
from tests.train.checkpoints import read, write_checkpoint

FULL = Path("/dev/full")  # whatever is written there meets a full disk
Fit = Callable[..., Result]


def kept_in(folder: Path) -> list[str]:
    """Return the checkpoints that the run's record names, which must be there."""
    names = [each["name"] for each in json.loads((folder / RECORD).read_text())["kept"]]
    for name in names:
        assert read(Checkpoint(folder / name), "state") == name[-1]
    return names


@pytest.mark.usefixtures("engine")
def test_a_full_disk_loses_a_checkpoint_and_not_the_run(
    fit: Fit, run_config: Callable[..., RunConfig], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "runs" / "run"
    seen: dict[int, list[str]] = {}

    class Disk(UserCallback):
        """Is full for checkpoint 1, and for the record when checkpoint 2 is there."""

        def after_report(self, run_context: Any, metrics: list[Any], checkpoint: Any) -> None:
            step = metrics[0]["step"]
            seen[step] = kept_in(folder)
            if step == 0:
                (folder / "checkpoint_000001").mkdir()
                (folder / "checkpoint_000001" / "state").symlink_to(FULL)
            if step == 1:
                (folder / f"{RECORD}.new").symlink_to(FULL)
            if step == 2:
                (folder / f"{RECORD}.new").unlink()

    def function() -> None:
        for step in range(4):
            train.report({"step": step}, checkpoint=write_checkpoint(state=str(step)))
            barrier()  # until the callback has been called

    run = run_config(keep=CheckpointConfig(num_to_keep=1), callbacks=[Disk()])
    result = fit(function, 1, run=run)
    assert result.metrics == {"step": 3}
    first, last = "checkpoint_000000", "checkpoint_000003"
    assert seen == {0: [first], 1: [first], 2: [first], 3: [last]}
    assert kept_in(folder) == [last]
    assert [path.name for path in folder.glob("checkpoint_*")] == [last]
    assert "checkpoint of report 1 is lost, and training goes on" in caplog.text
    assert "No space left on device" in caplog.text
    assert "the run's record" in caplog.text


def test_reports_that_cannot_be_noted_are_noted_later(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path), "run")
    storage.prepare()
    history = tmp_path / "run" / HISTORY
    history.symlink_to(FULL)
    for index in range(2):
        with pytest.raises(OSError, match="No space left"):
            storage.note(index, 0, {"loss": 1.0}, 0.0)
    history.unlink()
    storage.note(2, 0, {"loss": 1.0}, 0.0)
    assert [row["report"] for row in storage.history()] == [0, 1, 2]


def test_a_line_that_was_half_written_is_no_report(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path), "run")
    storage.prepare()
    storage.note(0, 0, {"loss": 1.0}, 0.0)
    with (tmp_path / "run" / HISTORY).open("a") as stream:
        stream.write('{"report": 1, "ra')
    assert [row["report"] for row in storage.history()] == [0]
    storage.begin_history()
    storage.note(1, 0, {"loss": 2.0}, 0.0)
    assert [row["report"] for row in storage.history()] == [0, 1]


@pytest.mark.usefixtures("engine")
def test_a_loss_that_is_no_number_is_told_once_and_kept(
    fit: Fit, run_config: Callable[..., RunConfig], caplog: pytest.LogCaptureFixture
) -> None:
    def function() -> None:
        rank = train.get_context().get_world_rank()
        for step in range(4):
            bad = rank == 1 and step >= 2
            train.report({"loss": float("nan") if bad else 1.0, "step": step})

    result = fit(function)
    said = [record.message for record in caplog.records if "NaN" in record.message]
    assert len(said) == 1
    assert "rank 1 reports NaN as 'loss', in its report 2 (loss=nan, step=2)" in said[0]
    losses = result.rank_metrics().query("rank == 1")["loss"]
    assert list(losses.isna()) == [False, False, True, True]
