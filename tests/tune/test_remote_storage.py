"""Experiments whose storage is not a local disk: what is uploaded when, and how they continue elsewhere."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyarrow.fs as pafs
import pytest

import skate
from skate import train, tune
from skate.train import ScalingConfig
from skate.train.data_parallel_trainer import DataParallelTrainer
from skate.tune._experiment import staging as staging_module
from skate.tune._experiment import uploads
from skate.tune._experiment.folder import JOURNAL, STATE
from skate.tune._experiment.reader import read_experiment
from skate.tune._experiment.staging import WRITER, Staging, open_folder
from skate.tune.schedulers import PopulationBasedTraining
from tests.plugins.command_line import Cli

NAME = "experiment"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Return a function that continues on a machine, by its name: each has files of its own."""

    def use(name: str) -> Path:
        cache = tmp_path / "machines" / name
        monkeypatch.setenv("SKATE_CACHE_DIR", str(cache))
        return cache / "tune"

    use("first")
    return use


@pytest.fixture
def bucket_folder(tmp_path: Path) -> Path:
    """The folder behind `remote`."""
    folder = tmp_path / "remote"
    folder.mkdir()
    return folder


@pytest.fixture
def remote(bucket_folder: Path) -> pafs.FileSystem:
    """A filesystem that is not the local one, and whose paths `open` does not accept."""
    return pafs.SubTreeFileSystem(str(bucket_folder), pafs.LocalFileSystem())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait between uploads."""
    monkeypatch.setattr(uploads, "MIN_PAUSE_S", 0.01)
    monkeypatch.setattr(uploads, "_SHARE", 1000.0)


def steps(config: dict[str, Any]) -> None:
    """Report four steps with checkpoints; the trial with x = 1 fails once at the third."""
    first = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            first = int(Path(folder, "step").read_text(encoding="utf-8"))
    Path(tune.get_context().get_trial_dir(), "notes.txt").write_text(f"from {first}", encoding="utf-8")
    for step in range(first + 1, 5):
        if step == 3 and config["x"] == 1 and first == 0:
            raise ValueError("once")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "step").write_text(str(step), encoding="utf-8")
            tune.report(
                {"step": step, "first": first, "loss": config["x"] + 1 / step},
                checkpoint=tune.Checkpoint.from_directory(folder),
            )


def settings(remote: pafs.FileSystem | None, path: str = "runs", **options: Any) -> tune.RunConfig:
    return tune.RunConfig(
        **{"name": NAME, "storage_path": path, "storage_filesystem": remote, "verbose": 0, **options}
    )


def tuner(run: tune.RunConfig, trainable: Any = steps, values: tuple[int, ...] = (0, 1)) -> tune.Tuner:
    return tune.Tuner(
        trainable,
        param_space={"x": tune.grid_search(list(values))},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=run,
    )


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("engine", "machine")
class TestWholeExperiment:
    def test_results_and_checkpoints_are_in_the_storage(
        self, remote: pafs.FileSystem, bucket_folder: Path, machine: Callable[[str], Path]
    ) -> None:
        results = tuner(settings(remote)).fit()
        assert (results.experiment_path, results.filesystem) == (f"runs/{NAME}", remote)
        assert [(r.metrics["step"], r.error is None) for r in results] == [(4, True), (2, False)]
        best = results.get_best_result()
        assert best.filesystem == remote
        assert best.path.startswith(f"runs/{NAME}/")
        assert list(best.metrics_dataframe["step"]) == [1, 2, 3, 4]
        with best.checkpoint.as_directory() as folder:
            assert Path(folder, "step").read_text(encoding="utf-8") == "4"
        assert [c.path.rpartition("/")[2] for c, _ in best.best_checkpoints] == [
            f"checkpoint_{number:06d}" for number in range(4)
        ]

        stored = bucket_folder / "runs" / NAME
        trial = bucket_folder / best.path
        assert files_below(trial) == {"params.json", "result.json", "notes.txt"} | {
            f"checkpoint_{number:06d}/step" for number in range(4)
        }
        failed = bucket_folder / results[1].path
        assert "once" in (failed / "error.txt").read_text(encoding="utf-8")
        assert {path.name for path in stored.iterdir() if path.is_file()} == {
            *("journal.jsonl", "search_state.pkl", "tuner.pkl", "tuner.json", "writer.json")
        }
        # Nothing is left on this machine but a lock, which is never deleted while another program may open it.
        assert [path.suffix for path in machine("first").iterdir()] == [".lock"]

    def test_everything_that_reads_experiments_reads_the_storage(
        self, remote: pafs.FileSystem, machine: Callable[[str], Path]
    ) -> None:
        assert not tune.Tuner.can_restore(f"runs/{NAME}", storage_filesystem=remote)
        results = tuner(settings(remote)).fit()
        machine("second")
        assert tune.Tuner.can_restore(f"runs/{NAME}", storage_filesystem=remote)
        analysis = tune.ExperimentAnalysis(
            f"runs/{NAME}", storage_filesystem=remote, default_metric="loss", default_mode="min"
        )
        assert analysis.best_config == {"x": 0}
        assert list(analysis.best_dataframe["step"]) == [1, 2, 3, 4]
        assert analysis.best_trial.path == results[0].path
        by_file = tune.ExperimentAnalysis(f"runs/{NAME}/journal.jsonl", storage_filesystem=remote)
        assert by_file.experiment_path == f"runs/{NAME}"
        found = tune.Result.from_path(results[1].path, storage_filesystem=remote)
        assert (found.metrics["step"], str(found.error)) == (2, "ValueError: once")
        with pytest.raises(RuntimeError, match="doesn't exist"):
            tune.Result.from_path(f"runs/{NAME}/none", storage_filesystem=remote)
        with pytest.raises(FileNotFoundError, match=r"subtree://runs/none holds no experiment"):
            tune.Tuner.restore("runs/none", steps, storage_filesystem=remote)
        with pytest.raises(ValueError, match=r"subtree://runs holds no experiment"):
            tune.ExperimentAnalysis("runs", storage_filesystem=remote)

    def test_a_trial_knows_both_of_its_folders(self, remote: pafs.FileSystem) -> None:
        def function(config: dict[str, Any]) -> dict[str, Any]:
            context = tune.get_context()
            storage = context.get_storage()
            return {
                "loss": 0,
                "stored": storage.trial_fs_path,
                "kind": storage.storage_filesystem.type_name,
                "local": storage.trial_working_directory == context.get_trial_dir(),
            }

        [result] = tuner(settings(remote), function, (0,)).fit()
        assert {name: result.metrics[name] for name in ("stored", "kind", "local")} == {
            "stored": result.path,
            "kind": "subtree",
            "local": True,
        }

    def test_no_credentials_are_stored(self, bucket_folder: Path) -> None:
        class Handler(pafs.FSSpecHandler):  # type: ignore[misc]
            def __reduce__(self) -> Any:
                raise TypeError("pickled")

        fsspec = pytest.importorskip("fsspec")
        handler = Handler(fsspec.filesystem("dir", path=str(bucket_folder)))
        tuner(settings(pafs.PyFileSystem(handler)))
        assert (bucket_folder / "runs" / NAME / "tuner.pkl").exists()

    def test_a_second_experiment_of_the_same_name_keeps_the_journal_of_the_first(
        self, remote: pafs.FileSystem, bucket_folder: Path, machine: Callable[[str], Path]
    ) -> None:
        tuner(settings(remote), values=(0,)).fit()
        machine("second")
        tuner(settings(remote), values=(2, 3)).fit()
        restored = tune.Tuner.restore(f"runs/{NAME}", steps, storage_filesystem=remote)
        assert [r.config["x"] for r in restored.get_results()] == [2, 3]
        assert (bucket_folder / "runs" / NAME / "journal-1.jsonl").exists()

    def test_a_storage_that_is_not_writable_is_found_before_trials_run(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        broken = pafs.SubTreeFileSystem(str(tmp_path / "file"), pafs.LocalFileSystem())
        with pytest.raises(tune.TuneError, match=r"cannot be stored in subtree://runs/experiment"):
            tuner(settings(broken), lambda config: pytest.fail("ran"))

    def test_tune_run_stores_there_and_resumes(self, remote: pafs.FileSystem) -> None:
        options: dict[str, Any] = {
            "name": NAME,
            "storage_path": "runs",
            "storage_filesystem": remote,
            "config": {"x": tune.grid_search([0, 1])},
            "verbose": 0,
            "raise_on_failed_trial": False,
        }
        analysis = tune.run(steps, **options)
        assert [trial.status for trial in analysis.trials] == ["TERMINATED", "ERROR"]
        assert analysis.trials[0].path == f"runs/{NAME}/{analysis.trials[0].relative_logdir}"
        analysis = tune.run(steps, resume="AUTO+ERRORED", **options)
        assert [trial.last_result["first"] for trial in analysis.trials] == [0, 2]

    def test_a_trial_starts_from_a_checkpoint_on_a_local_disk(
        self, remote: pafs.FileSystem, tmp_path: Path
    ) -> None:
        (tmp_path / "begin").mkdir()
        (tmp_path / "begin" / "step").write_text("3", encoding="utf-8")
        analysis = tune.run(
            steps,
            name=NAME,
            storage_path="runs",
            storage_filesystem=remote,
            config={"x": 0},
            restore=str(tmp_path / "begin"),
            verbose=0,
        )
        assert analysis.trials[0].last_result["first"] == 3

    def test_dropped_checkpoints_are_deleted_in_the_storage(
        self, remote: pafs.FileSystem, bucket_folder: Path
    ) -> None:
        run = settings(remote, checkpoint_config=tune.CheckpointConfig(num_to_keep=1))
        [result] = tuner(run, values=(0,)).fit()
        kept = [path.parent.name for path in (bucket_folder / result.path).rglob("step")]
        assert kept == ["checkpoint_000003"]

    def test_a_population_exchanges_checkpoints_in_the_storage(self, remote: pafs.FileSystem) -> None:
        def function(config: dict[str, Any]) -> None:
            checkpoint, total = tune.get_checkpoint(), 0.0
            if checkpoint is not None:
                with checkpoint.as_directory() as folder:
                    total = float(Path(folder, "total").read_text(encoding="utf-8"))
            for _ in range(12):
                total += config["rate"]
                with tempfile.TemporaryDirectory() as folder:
                    Path(folder, "total").write_text(str(total), encoding="utf-8")
                    tune.report({"total": total}, checkpoint=tune.Checkpoint.from_directory(folder))

        results = tune.Tuner(
            function,
            param_space={"rate": tune.grid_search([0.0, 1.0])},
            tune_config=tune.TuneConfig(
                metric="total",
                mode="max",
                scheduler=PopulationBasedTraining(
                    time_attr="training_iteration",
                    perturbation_interval=3,
                    hyperparam_mutations={"rate": [1.0]},
                    quantile_fraction=0.5,
                    synch=True,
                    seed=0,
                ),
            ),
            run_config=settings(remote, stop={"training_iteration": 12}),
        ).fit()
        assert not results.errors
        assert min(result.metrics["total"] for result in results) > 3

    def test_a_trainer_stores_its_checkpoints_directly(
        self, remote: pafs.FileSystem, bucket_folder: Path
    ) -> None:
        def learn(config: dict[str, Any]) -> None:
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "weights").write_text(str(config["x"]), encoding="utf-8")
                train.report({"loss": config["x"]}, checkpoint=train.Checkpoint.from_directory(folder))

        trainer = DataParallelTrainer(learn, scaling_config=ScalingConfig(num_workers=1))
        [result] = tune.Tuner(
            trainer, param_space={"train_loop_config": {"x": 7}}, run_config=settings(remote)
        ).fit()
        assert result.error is None
        assert result.checkpoint.filesystem == remote
        weights = bucket_folder / result.checkpoint.path / "weights"
        assert weights.read_text(encoding="utf-8") == "7"


@pytest.mark.usefixtures("engine", "machine")
class TestRestore:
    def test_failed_trials_continue_on_another_machine(
        self, remote: pafs.FileSystem, bucket_folder: Path, machine: Callable[[str], Path]
    ) -> None:
        tuner(settings(remote)).fit()
        machine("second")
        restored = tune.Tuner.restore(f"runs/{NAME}", steps, resume_errored=True, storage_filesystem=remote)
        assert [r.metrics["step"] for r in restored.get_results()] == [4, 2]
        results = restored.fit()
        assert [(r.metrics["step"], r.metrics["first"]) for r in results] == [(4, 0), (4, 2)]
        # The files of trials that continue were downloaded, so the results of the first machine are still there.
        assert list(results[1].metrics_dataframe["step"]) == [1, 2, 3, 4]
        assert list(results[0].metrics_dataframe["step"]) == [1, 2, 3, 4]
        notes = bucket_folder / results[1].path / "notes.txt"
        assert notes.read_text(encoding="utf-8") == "from 2"
        machine("third")
        again = tune.Tuner.restore(f"runs/{NAME}", steps, storage_filesystem=remote).fit()
        assert [r.metrics["step"] for r in again] == [4, 4]

    def test_files_of_a_machine_are_used_unless_another_one_has_continued(
        self,
        remote: pafs.FileSystem,
        bucket_folder: Path,
        machine: Callable[[str], Path],
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        sound = Staging.upload

        def fail(self: Staging) -> None:
            raise OSError("no network")

        monkeypatch.setattr(Staging, "upload", fail)
        monkeypatch.setattr(uploads, "MIN_PAUSE_S", 0.01)
        first = tuner(settings(remote))
        with pytest.raises(
            tune.TuneError, match=r"not all results are in subtree://.*: no network"
        ) as caught:
            first.fit()
        [local] = [path for path in machine("first").iterdir() if path.is_dir()]
        assert str(local) in str(caught.value)
        assert [r.metrics["step"] for r in first.get_results()] == [4, 2]
        monkeypatch.setattr(Staging, "upload", sound)

        machine("second")
        assert not open_folder(f"runs/{NAME}", remote).exists()
        machine("first")
        restored = tune.Tuner.restore(f"runs/{NAME}", steps, storage_filesystem=remote)
        assert [r.metrics["step"] for r in restored.get_results()] == [4, 2]
        shutil.copytree(local, local.with_name("copy"))
        assert [r.metrics["step"] for r in restored.fit()] == [4, 2]
        assert not local.exists()

        # The files of this machine are older than those that the second uploads.
        local.with_name("copy").rename(local)
        machine("second")
        tune.Tuner.restore(f"runs/{NAME}", steps, storage_filesystem=remote, resume_errored=True).fit()
        machine("first")
        results = tune.Tuner.restore(f"runs/{NAME}", steps, storage_filesystem=remote).fit()
        assert [r.metrics["step"] for r in results] == [4, 4]
        assert "was continued on another machine" in caplog.text

    def test_a_second_program_on_this_machine_is_refused(self, remote: pafs.FileSystem) -> None:
        def function(config: dict[str, Any]) -> dict[str, int]:
            return {"loss": 1}

        class Second(tune.Callback):
            def on_trial_start(self, **info: Any) -> None:
                with pytest.raises(
                    tune.TuneError, match=r"another program \(process \d+\) runs .* subtree://"
                ):
                    tuner(settings(remote), function).fit()

        assert tuner(settings(remote, callbacks=[Second()]), function).fit().num_errors == 0

    def test_a_program_on_another_machine_takes_over(
        self, remote: pafs.FileSystem, machine: Callable[[str], Path], quick: None
    ) -> None:
        class Other(tune.Callback):
            def on_trial_start(self, **info: Any) -> None:
                machine("second")
                staging = Staging(remote, f"runs/{NAME}")
                with staging.locked():
                    staging.prepare()
                machine("first")

        with pytest.raises(tune.TuneError, match="a program on another machine continues the experiment"):
            tuner(settings(remote, callbacks=[Other()])).fit()


@pytest.mark.usefixtures("machine", "quick")
class TestUploads:
    @pytest.fixture
    def staging(self, remote: pafs.FileSystem) -> Staging:
        made = Staging(remote, f"runs/{NAME}")
        with made.locked():
            made.prepare()
        return made

    def test_only_changed_files_are_uploaded(self, staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
        sent: list[str] = []
        write = Staging._write

        def spy(self: Staging, name: str, chunks: Any) -> None:
            sent.append(name)
            write(self, name, chunks)

        monkeypatch.setattr(Staging, "_write", spy)
        (staging.local / "trial").mkdir()
        for name in (JOURNAL, STATE, "trial/result.json", "tuner.pkl"):
            (staging.local / name).write_text("1", encoding="utf-8")
        staging.upload()
        assert sorted(sent[:2]) == ["trial/result.json", "tuner.pkl"]
        assert sent[2:] == [JOURNAL, STATE]
        sent.clear()
        (staging.local / "trial" / "result.json").write_text("12", encoding="utf-8")
        staging.upload()
        staging.upload()
        assert sent == ["trial/result.json"]

    def test_the_state_in_the_storage_is_never_newer_than_the_journal(
        self, staging: Staging, bucket_folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The program goes on, and is killed, at each point of an upload."""
        stored = bucket_folder / "runs" / NAME
        write = Staging._write
        number = 0

        def advance() -> None:
            nonlocal number
            number += 1
            with (staging.local / JOURNAL).open("a", encoding="utf-8") as file:
                file.write(f"{number}\n")
            (staging.local / f"{STATE}.new").write_text(str(number), encoding="utf-8")
            (staging.local / f"{STATE}.new").replace(staging.local / STATE)

        def check() -> None:
            if (stored / STATE).exists():
                lines = (stored / JOURNAL).read_text(encoding="utf-8").splitlines()
                assert int((stored / STATE).read_text(encoding="utf-8")) <= len(lines)

        def watched(self: Staging, name: str, chunks: Any) -> None:
            def advancing() -> Iterator[bytes]:
                for chunk in chunks:
                    advance()
                    yield chunk

            check()
            write(self, name, advancing())
            check()
            advance()

        monkeypatch.setattr(Staging, "_write", watched)
        for _ in range(4):
            advance()
            staging.upload()
        assert (stored / STATE).exists()

    def test_a_file_that_cannot_be_uploaded_does_not_hold_up_the_others(
        self, staging: Staging, bucket_folder: Path
    ) -> None:
        (staging.local / "a").mkdir()
        (staging.local / "a" / "bad").write_text("1", encoding="utf-8")
        (staging.local / JOURNAL).write_text("1\n", encoding="utf-8")
        stored = bucket_folder / "runs" / NAME
        (stored / "a").touch()  # not a folder
        with pytest.raises(tune.TuneError, match=r"cannot upload .*/a/bad to subtree://runs/experiment: "):
            staging.upload()
        assert (stored / JOURNAL).exists()
        (stored / "a").unlink()
        staging.upload()
        assert (stored / "a" / "bad").exists()

    def test_a_folder_that_cannot_be_read_is_an_error_after_all_others_are_uploaded(
        self, staging: Staging, bucket_folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("a", "b"):
            (staging.local / name).mkdir()
            (staging.local / name / "file").touch()
        scan = os.scandir

        def refuse(path: Any) -> Any:
            if str(path).endswith("/a"):
                raise PermissionError("not yours")
            return scan(path)

        monkeypatch.setattr(os, "scandir", refuse)
        with pytest.raises(tune.TuneError, match=r"cannot upload .*/a to .*: not yours"):
            staging.upload()
        assert (bucket_folder / "runs" / NAME / "b" / "file").exists()

    def test_a_folder_that_was_deleted_in_the_storage_is_uploaded_again(
        self, staging: Staging, bucket_folder: Path
    ) -> None:
        (staging.local / "file").write_text("1", encoding="utf-8")
        staging.upload()
        shutil.rmtree(bucket_folder / "runs")
        staging.upload()
        assert files_below(bucket_folder / "runs" / NAME) == {"file", WRITER}

    def test_checkpoints_are_deleted_after_the_upload_that_no_longer_needs_them(
        self, staging: Staging, bucket_folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        old = bucket_folder / "runs" / NAME / "trial" / "checkpoint_000000"
        old.mkdir(parents=True)
        there: list[bool] = []
        upload = Staging.upload

        def spy(self: Staging) -> None:
            there.append(old.exists())
            if len(there) == 1:
                raise OSError("no network")
            upload(self)

        monkeypatch.setattr(Staging, "upload", spy)
        uploader = uploads.Uploader(staging, tune.SyncConfig(sync_period=0))
        uploader.request([f"runs/{NAME}/trial/checkpoint_000000"])
        uploader.start()
        assert uploader.close() is None
        assert there[:2] == [True, True]
        assert not old.exists()

    def test_a_failed_upload_is_a_warning_and_is_tried_again(
        self, staging: Staging, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        attempts = threading.Semaphore(0)

        def fail(self: Staging) -> None:
            attempts.release()
            raise OSError("no network")

        monkeypatch.setattr(Staging, "upload", fail)
        uploader = uploads.Uploader(staging, tune.SyncConfig(sync_period=0))
        uploader.start()
        for _ in range(3):
            assert attempts.acquire(timeout=60)
        assert str(uploader.close()) == "no network"
        assert "no network. The next attempt is in at most 0 s." in caplog.text

    def test_a_variable_has_the_interval(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert uploads._default_config().sync_period == 300
        monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", "2.5")
        assert uploads._default_config().sync_period == 2.5
        monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", "often")
        with pytest.raises(ValueError, match="TUNE_GLOBAL_CHECKPOINT_S is 'often'"):
            uploads._default_config()

    def test_the_end_waits_for_a_limited_time(
        self, staging: Staging, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ends = threading.Event()

        def hang(self: Staging) -> None:
            ends.wait(60)

        monkeypatch.setattr(Staging, "upload", hang)
        uploader = uploads.Uploader(staging, tune.SyncConfig(sync_timeout=0))
        assert "longer than SyncConfig(sync_timeout=0)" in str(uploader.close())
        ends.set()
        uploader._thread.join()


@pytest.mark.usefixtures("engine", "machine", "quick")
class TestFailingStorage:
    def test_results_appear_in_the_storage_while_trials_run(
        self, remote: pafs.FileSystem, bucket_folder: Path
    ) -> None:
        class Look(tune.Callback):
            def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
                if len(trials) < 2:
                    return
                journal = bucket_folder / "runs" / NAME / JOURNAL
                deadline = time.monotonic() + 60
                while not (journal.exists() and "checkpoint" in journal.read_text(encoding="utf-8")):
                    assert time.monotonic() < deadline
                    time.sleep(0.01)

        results = tuner(settings(remote, callbacks=[Look()]), values=(0, 2, 3)).fit()
        assert results.num_errors == 0

    def test_an_interruption_uploads_what_there_is(
        self, remote: pafs.FileSystem, machine: Callable[[str], Path]
    ) -> None:
        class Interrupt(tune.Callback):
            def on_trial_complete(self, **info: Any) -> None:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            tuner(settings(remote, callbacks=[Interrupt()]), values=(0, 2, 3)).fit()
        machine("second")
        restored = tune.Tuner.restore(f"runs/{NAME}", steps, storage_filesystem=remote)
        assert 4 in [r.metrics.get("step") for r in restored.get_results()]

    def test_an_error_of_the_experiment_is_raised_although_the_upload_fails(
        self, remote: pafs.FileSystem, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Break(tune.Callback):
            def on_trial_complete(self, **info: Any) -> None:
                raise ZeroDivisionError

        def fail(self: Staging) -> None:
            raise OSError("no network")

        monkeypatch.setattr(Staging, "upload", fail)
        with caplog.at_level(logging.WARNING), pytest.raises(ZeroDivisionError):
            tuner(settings(remote, callbacks=[Break()])).fit()
        assert "not all results are in subtree://runs/experiment: no network" in caplog.text


PROGRAM = """
import sys, time
import pyarrow.fs as pafs
import skate
from skate import tune

def function(config):
    time.sleep(0.02)
    return {"loss": config["x"] ** 2}

if __name__ == "__main__":
    skate.init(num_cpus=2)
    remote = pafs.SubTreeFileSystem(sys.argv[1], pafs.LocalFileSystem())
    if tune.Tuner.can_restore("runs/experiment", storage_filesystem=remote):
        tuner = tune.Tuner.restore("runs/experiment", function, storage_filesystem=remote)
    else:
        tuner = tune.Tuner(
            function,
            param_space={"x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(num_samples=400, metric="loss", mode="min"),
            run_config=tune.RunConfig(
                name="experiment",
                storage_path="runs",
                storage_filesystem=remote,
                sync_config=tune.SyncConfig(sync_period=0),
            ),
        )
    results = tuner.fit()
    print("trials", len(results), results.num_terminated, len({r.metrics["trial_id"] for r in results}))
"""


@pytest.mark.parametrize("machines", ["one", "several"])
def test_a_program_that_is_killed_completes_every_trial_once(
    machines: str, tmp_path: Path, bucket_folder: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(dedent(PROGRAM), encoding="utf-8")
    journal = bucket_folder / "runs" / NAME / JOURNAL

    def command(number: int) -> dict[str, Any]:
        cache = tmp_path / "machines" / (str(number) if machines == "several" else "0")
        return {
            "args": [sys.executable, str(program), str(bucket_folder)],
            "env": {**os.environ, "SKATE_CACHE_DIR": str(cache)},
        }

    ended: set[str] = set()
    for number in range(2):
        process = subprocess.Popen(**command(number), stdout=subprocess.DEVNULL)
        begun = journal.stat().st_size if journal.exists() else 0
        while process.poll() is None and (not journal.exists() or journal.stat().st_size <= begun):
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL  # in the middle
        seen = {
            record["trial"]: record
            for record in staging_module.open_folder(
                f"runs/{NAME}", pafs.SubTreeFileSystem(str(bucket_folder), pafs.LocalFileSystem())
            ).read_journal()
            if record["event"] == "ended"
        }
        assert ended <= set(seen)
        ended = set(seen)
    done = subprocess.run(**command(2), capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.splitlines()[-1:] == ["trials 400 400 400"], done.stderr


@pytest.mark.usefixtures("machine", "client_libraries")
def test_memory_of_this_process_is_a_storage() -> None:
    fsspec = pytest.importorskip("fsspec")
    path = f"memory://store/runs/{NAME}"
    seen: list[Any] = []

    class Look(tune.Callback):
        def on_trial_complete(self, **info: Any) -> None:
            found = read_experiment(path)  # before anything is uploaded: from the files of this machine
            seen.append((found.process, [trial.status for trial in found.trials][:1]))

    skate.init(engine="inline")
    try:
        results = tuner(settings(None, "memory://store/runs", callbacks=[Look()])).fit()
        assert [r.metrics["step"] for r in results] == [4, 2]
        assert seen == [(os.getpid(), ["RUNNING"])]
        assert list(tune.Result.from_path(f"memory://{results[0].path}").metrics_dataframe["step"]) == [
            1,
            2,
            3,
            4,
        ]
        restored = tune.Tuner.restore(path, steps, resume_errored=True).fit()
        assert [(r.metrics["step"], r.metrics["first"]) for r in restored] == [(4, 0), (4, 2)]
    finally:
        skate.shutdown()
        fsspec.filesystem("memory").store.clear()


def test_file_uris_are_local_paths(tmp_path: Path) -> None:
    assert tune.RunConfig(storage_path=f"file://{tmp_path}").storage_path == str(tmp_path)
    with pytest.raises(ValueError, match="leave one of them out"):
        tune.RunConfig(storage_path="s3://bucket", storage_filesystem=pafs.LocalFileSystem())
    with pytest.raises(TypeError, match="storage_filesystem"):
        tune.RunConfig(storage_path="bucket", storage_filesystem="s3")  # type: ignore[arg-type]


@pytest.mark.usefixtures("machine")
class TestObjectStore:
    @pytest.fixture(autouse=True)
    def _needs_moto(self) -> None:
        pytest.importorskip("moto.server")

    @pytest.mark.usefixtures("engine")
    def test_an_experiment_runs_on_s3_and_continues_elsewhere(
        self, bucket: str, store: pafs.S3FileSystem, machine: Callable[[str], Path], cli: Cli
    ) -> None:
        path = f"{bucket}/runs/{NAME}"
        run = settings(store, "data/runs", checkpoint_config=tune.CheckpointConfig(num_to_keep=1))
        results = tuner(run).fit()
        assert results[0].path.startswith(f"data/runs/{NAME}/")
        assert isinstance(results[0].filesystem, pafs.S3FileSystem)
        found = store.get_file_info(pafs.FileSelector(results[0].path, recursive=True))
        assert {info.path.removeprefix(f"{results[0].path}/") for info in found if info.is_file} == {
            *("params.json", "result.json", "notes.txt", "checkpoint_000003/step")
        }

        machine("second")
        assert tune.Tuner.can_restore(path)
        assert not tune.Tuner.can_restore(f"{bucket}/runs/other")
        assert tune.ExperimentAnalysis(path).results_df["step"].tolist() == [4, 2]
        assert tune.Result.from_path(f"s3://{results[0].path}").metrics["step"] == 4
        rows = json.loads(cli("tune", "list-trials", path, "--format", "json").out)
        assert [(row["status"], row["logdir"]) for row in rows] == [
            ("TERMINATED", results[0].path),
            ("ERROR", results[1].path),
        ]
        [row] = json.loads(cli("tune", "list-experiments", f"{bucket}/runs", "--format", "json").out)
        assert (row["name"], row["total_trials"], row["path"]) == (NAME, 2, path)
        assert "best_value   0.25" in cli("tune", "show", path).out
        assert "contains experiments" in cli("tune", "ls", f"{bucket}/runs", status=1).err

        restored = tune.Tuner.restore(
            f"data/runs/{NAME}", steps, resume_errored=True, storage_filesystem=store
        ).fit()
        assert [(r.metrics["step"], r.metrics["first"]) for r in restored] == [(4, 0), (4, 2)]
        assert list(restored[1].metrics_dataframe["step"]) == [1, 2, 3, 4]

    def test_a_uri_is_enough(self, bucket: str, machine: Callable[[str], Path]) -> None:
        skate.init(engine="inline")
        try:
            tuner(settings(None, f"{bucket}/runs")).fit()
            machine("second")
            restored = tune.Tuner.restore(f"{bucket}/runs/{NAME}", steps, resume_errored=True).fit()
            assert [(r.metrics["step"], r.metrics["first"]) for r in restored] == [(4, 0), (4, 2)]
        finally:
            skate.shutdown()

    def test_a_bucket_that_does_not_exist_is_found_before_trials_run(self, bucket: str) -> None:
        with pytest.raises((tune.TuneError, ValueError), match="nosuch"):
            tuner(settings(None, "s3://nosuch/runs"), lambda config: pytest.fail("ran"))
