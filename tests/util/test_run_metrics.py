"""Metrics of datasets, training runs and experiments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import skate
from skate.util import _run_metrics, _run_records, _session
from skate.util._run_metrics import run_series
from skate.util._run_records import RunRecord
from tests.serve.waiting import until


def values(session: str | Path, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """Return the values of a metric by some of its labels."""
    found = [series for series in run_series(str(session)) if series.family.name == name]
    return {tuple(dict(each.tags)[label] for label in labels): each.values[0] for each in found}


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Pretend that this process has a session whose folder is the test's."""
    monkeypatch.setattr(_session, "session_folder", lambda: str(tmp_path))
    monkeypatch.setattr(_session, "on_shutdown", lambda callback: None)
    yield tmp_path
    _run_records._publisher.stop()


@pytest.fixture
def local_session(leak_watch: Any) -> Iterator[str]:
    """Start a session on the local engine; return its folder."""
    with skate.init(num_cpus=2):
        yield skate.get_runtime_context().get_session_dir()


def test_a_dataset_that_runs_has_metrics_of_each_operator(local_session: str) -> None:
    from skate import data

    class Same:
        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return batch

    dataset = data.range(1000, override_num_blocks=4).map_batches(Same, concurrency=1)
    dataset.set_name("numbers")
    rows = iter(dataset.iter_batches(batch_size=10))
    next(rows)
    labels = ("dataset", "operator")
    operators = [("numbers", "ReadRange0"), ("numbers", "MapBatches(Same)1")]
    until(lambda: values(local_session, "data_output_rows", *labels) == dict.fromkeys(operators, 1000))
    for family in _run_metrics.DATA_FAMILIES:
        assert list(values(local_session, family.name, *labels)) == operators
    assert values(local_session, "data_output_bytes", *labels)[operators[1]] == 8000
    assert list(rows)[-1]["id"][-1] == 999


def test_a_training_run_has_metrics(local_session: str, tmp_path: Path) -> None:
    from skate import train
    from skate.train.data_parallel_trainer import DataParallelTrainer

    def work() -> None:
        for step in range(3):
            with train.Checkpoint.from_directory(str(tmp_path / "empty")).as_directory() as folder:
                checkpoint = train.Checkpoint.from_directory(folder) if step else None
                train.report({"loss": float(step)}, checkpoint=checkpoint)

    (tmp_path / "empty").mkdir()
    DataParallelTrainer(
        work,
        scaling_config=train.ScalingConfig(num_workers=1),
        run_config=train.RunConfig(name="numbers", storage_path=str(tmp_path)),
    ).fit()
    label = "ray_train_run_name"
    assert values(local_session, "train_reports", label) == {("numbers",): 3}
    assert values(local_session, "train_checkpoints", label) == {("numbers",): 2}
    assert values(local_session, "train_failures", label) == {("numbers",): 0}
    assert values(local_session, "train_workers", label, "State") == {("numbers", "FINISHED"): 1}


def test_an_experiment_has_metrics(local_session: str, tmp_path: Path) -> None:
    from skate import tune

    def work(config: dict[str, Any]) -> None:
        for _ in range(2):
            tune.report({"loss": 1.0})
        if config["x"] == 2:
            raise LookupError("on purpose")

    tune.Tuner(
        work,
        param_space={"x": tune.grid_search([1, 2, 3])},
        run_config=tune.RunConfig(name="numbers", storage_path=str(tmp_path), verbose=0),
    ).fit()
    states = values(local_session, "tune_trials", "experiment", "State")
    assert states == {("numbers", "TERMINATED"): 2, ("numbers", "ERROR"): 1}
    assert values(local_session, "tune_results", "experiment") == {("numbers",): 6}


def test_a_run_that_could_not_be_described_has_no_metrics(session: Path) -> None:
    for kind in ("data", "train", "tune"):
        RunRecord(kind, "broken", dict).close("FAILED", ValueError("on purpose"))  # type: ignore[arg-type]
    assert run_series(str(session)) == []


def test_old_runs_have_no_metrics(session: Path) -> None:
    most = _run_metrics._MAX_ENDED
    running = RunRecord("tune", "running", lambda: {"trials_by_status": {"RUNNING": 1}})
    running.publish_if_due(float("inf"))
    for number in range(most + 1):
        RunRecord("tune", str(number), lambda: {"trials_by_status": {"PENDING": 1}}).close("FINISHED")
    names = [name for (name,) in values(session, "tune_trials", "experiment")]
    assert names == [*map(str, range(1, most + 1)), "running"]
    running.close("FINISHED")
