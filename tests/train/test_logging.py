"""The log of a run."""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from skate import train
from skate.train import Checkpoint, LoggingConfig, Result, RunConfig
from skate.train._storage.run_folder import Storage
from skate.train._views.logs import LOG, RunLog, log

pytestmark = pytest.mark.ray_more

Fit = Callable[..., Result]


def fails_once() -> None:
    if train.get_checkpoint() is None:
        with tempfile.TemporaryDirectory() as folder:
            train.report({}, checkpoint=Checkpoint(folder))
        raise ValueError("bad weights")


@pytest.mark.usefixtures("engine")
def test_the_log_of_a_run_tells_its_story(fit: Fit, run_config: Callable[..., RunConfig]) -> None:
    result = fit(fails_once, 1, run=run_config(failures=1))
    text = Path(result.path, LOG).read_text()
    assert "INFO run run starts" in text
    assert "WARNING rank 0 failed:" in text
    assert "ValueError: bad weights" in text
    assert "failure 1 of 1: restarting from" in text
    assert f"s: {result.path}" in text.splitlines()[-1]


def test_an_error_that_ends_a_run_is_in_its_log(fit: Fit, tmp_path: Path) -> None:
    def fails() -> None:
        raise ValueError("bad weights")

    with pytest.raises(train.WorkerGroupError):
        fit(fails, 0)
    last = (tmp_path / "runs" / "run" / LOG).read_text().splitlines()[-1]
    assert "ERROR the run ended after" in last
    assert "bad weights" in last


def test_only_what_matters_is_said(fit: Fit, run_config: Callable[..., RunConfig]) -> None:
    before = log.level
    quiet = run_config(logging_config=LoggingConfig(log_level="warning"))
    assert not Path(fit(lambda: None, 0, run=quiet).path, LOG).exists()
    assert log.level == before


def test_the_most_talkative_of_several_runs_decides(tmp_path: Path) -> None:
    before = log.level
    with RunLog(Storage(str(tmp_path), "a"), "ERROR"):
        assert log.level == logging.ERROR
        with RunLog(Storage(str(tmp_path), "b"), "DEBUG"):
            assert log.level == logging.DEBUG
        assert log.level == logging.ERROR
    assert log.level == before


def test_a_run_has_what_its_own_thread_says(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with RunLog(Storage(str(tmp_path), "run"), "INFO"):
        log.info("mine")
        other = threading.Thread(target=log.info, args=["another's"])
        other.start()
        other.join()
    text = (tmp_path / "run" / LOG).read_text()
    assert "mine" in text
    assert "another's" not in text


def test_the_log_of_a_run_elsewhere_is_brought_there_and_grows(fit: Fit, tmp_path: Path) -> None:
    there = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    for _ in range(2):
        fit(lambda: None, 0, run=RunConfig(name="run", storage_path="bucket", storage_filesystem=there))
    assert (tmp_path / "bucket" / "run" / LOG).read_text().count("run run starts") == 2


def test_a_level_is_a_name_in_any_case() -> None:
    assert LoggingConfig(log_level="debug").log_level == "DEBUG"
    for wrong in ("loud", 10):
        with pytest.raises(ValueError, match="Invalid log_level"):
            LoggingConfig(log_level=wrong)  # type: ignore[arg-type]
