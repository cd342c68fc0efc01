"""Full disks and half-written lines: the run continues, and earlier checkpoints stay valid."""

from __future__ import annotations

import errno
import json
import pickle
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skate import train
from skate.exceptions import OutOfDiskError
from skate.train import Checkpoint, CheckpointConfig, Result, RunConfig, ScalingConfig, UserCallback
from skate.train._storage import folders
from skate.train._storage.run_folder import HISTORY_FILE, RUN_FILE, Storage
from skate.train.collective import barrier
from skate.train.data_parallel_trainer import DataParallelTrainer
from tests.train.checkpoints import read, write_checkpoint

pytestmark = pytest.mark.ray_more

FULL = Path("/dev/full")  # whatever is written there meets a full disk
Fit = Callable[..., Result]


def kept_in(folder: Path) -> list[str]:
    """Return the checkpoints that the run's record names, which must be there."""
    names = [each["name"] for each in json.loads((folder / RUN_FILE).read_text())["kept"]]
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
                (folder / f"{RUN_FILE}.new").symlink_to(FULL)
            if step == 2:
                (folder / f"{RUN_FILE}.new").unlink()

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
    assert "checkpoint of report 1 is lost; training continues" in caplog.text
    assert "No space left on device" in caplog.text
    assert "the record of the run" in caplog.text


def test_reports_that_cannot_be_noted_are_noted_later(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path), "run")
    storage.prepare()
    history = tmp_path / "run" / HISTORY_FILE
    history.symlink_to(FULL)
    for index in range(2):
        with pytest.raises(OSError, match="No space left"):
            storage.append_history(index, 0, {"loss": 1.0}, 0.0)
    history.unlink()
    storage.append_history(2, 0, {"loss": 1.0}, 0.0)
    assert [row["report"] for row in storage.history()] == [0, 1, 2]


def test_a_line_that_was_half_written_is_no_report(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path), "run")
    storage.prepare()
    storage.append_history(0, 0, {"loss": 1.0}, 0.0)
    with (tmp_path / "run" / HISTORY_FILE).open("a") as stream:
        stream.write('{"report": 1, "ra')
    assert [row["report"] for row in storage.history()] == [0]
    storage.resume_history()
    storage.append_history(1, 0, {"loss": 2.0}, 0.0)
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


def test_a_run_does_not_begin_on_a_full_disk_and_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def function() -> None:
        train.report({"step": 0}, checkpoint=write_checkpoint(state="0"))

    def fit() -> Result:
        return DataParallelTrainer.restore(
            tmp_path / "run", function, scaling_config=ScalingConfig(num_workers=0)
        ).fit()

    DataParallelTrainer(
        function,
        scaling_config=ScalingConfig(num_workers=0),
        run_config=RunConfig(name="run", storage_path=str(tmp_path)),
    ).fit()
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    with monkeypatch.context() as full:
        number = uuid.uuid4()
        full.setattr(uuid, "uuid4", lambda: number)
        probe = tmp_path / "run" / f".writable-{number.hex}.new"
        probe.symlink_to(FULL)
        with pytest.raises(
            OutOfDiskError, match=r"the disk is full\. Free some space and call fit"
        ) as raised:
            fit()
    assert isinstance(raised.value, OSError)
    assert raised.value.errno == errno.ENOSPC
    assert isinstance(pickle.loads(pickle.dumps(raised.value)), OutOfDiskError)
    probe.unlink()
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == names
    assert kept_in(tmp_path / "run") == ["checkpoint_000000"]
    assert len(fit().best_checkpoints or ()) == 2


def test_a_checkpoint_that_does_not_fit_on_the_disk_leaves_no_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = write_checkpoint(state="0", other="1")
    folder = tmp_path / "copy"
    folder.mkdir()
    (folder / "state").symlink_to(FULL)
    with pytest.raises(OutOfDiskError, match="does not fit on the disk of") as raised:
        checkpoint.to_directory(folder)
    assert isinstance(raised.value, OSError)
    assert folder.is_dir()  # it is the user's
    (folder / "state").unlink()
    assert Path(checkpoint.to_directory(folder), "state").read_text() == "0"

    def copy(*_: Any) -> None:
        (tmp_path / "new" / "state").touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(folders, "copy", copy)
    with pytest.raises(OutOfDiskError, match="The checkpoint itself is complete"):
        checkpoint.to_directory(tmp_path / "new")
    assert not (tmp_path / "new").exists()
