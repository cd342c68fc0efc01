"""Experiments whose program ended early: `Tuner.restore` continues them, and no finished result is lost."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from skate import tune

pytestmark = pytest.mark.ray_more

PROGRAM = """
import sys, time
from skate import tune
import skate

def function(config):
    time.sleep(0.02)
    return {"loss": config["x"] ** 2}

if __name__ == "__main__":
    skate.init(num_cpus=2)
    folder = sys.argv[1]
    if tune.Tuner.can_restore(folder + "/experiment"):
        tuner = tune.Tuner.restore(folder + "/experiment", function)
    else:
        tuner = tune.Tuner(
            function,
            param_space={"x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(num_samples=60, metric="loss", mode="min"),
            run_config=tune.RunConfig(name="experiment", storage_path=folder),
        )
    results = tuner.fit()
    print("trials", len(results), results.num_terminated, len({r.metrics["trial_id"] for r in results}))
"""


@pytest.mark.usefixtures("engine")
class TestRestore:
    def test_unfinished_trials_continue_from_their_checkpoints(self, tmp_path: Path) -> None:
        def function(config: dict[str, Any]) -> None:
            checkpoint = tune.get_checkpoint()
            first = 0
            if checkpoint is not None:
                with checkpoint.as_directory() as folder:
                    first = int(Path(folder, "step").read_text(encoding="utf-8"))
            for step in range(first + 1, 6):
                if step == 4 and config["x"] == 1 and not (tmp_path / "failed").exists():
                    (tmp_path / "failed").touch()
                    raise ValueError("once")
                folder = tmp_path / f"{config['x']}-{step}"
                folder.mkdir(exist_ok=True)
                (folder / "step").write_text(str(step), encoding="utf-8")
                tune.report({"step": step, "first": first}, checkpoint=tune.Checkpoint.from_directory(folder))

        run = tune.RunConfig(name="experiment", storage_path=str(tmp_path))
        tuner = tune.Tuner(function, param_space={"x": tune.grid_search([0, 1])}, run_config=run)
        assert [result.error is None for result in tuner.fit()] == [True, False]

        path = str(tmp_path / "experiment")
        assert tune.Tuner.can_restore(path)
        assert [r.metrics["step"] for r in tune.Tuner.restore(path, function).get_results()] == [5, 3]
        results = tune.Tuner.restore(path, function, resume_errored=True).fit()
        assert [(r.metrics["step"], r.metrics["first"]) for r in results] == [(5, 0), (5, 3)]
        results = tune.Tuner.restore(path, function).fit()
        assert [(r.metrics["step"], r.metrics["first"]) for r in results] == [(5, 0), (5, 3)]

    def test_an_error_reads_the_same_after_two_restores(self, tmp_path: Path) -> None:
        def function(config: dict[str, Any]) -> None:
            raise ValueError("no")

        run = tune.RunConfig(name="experiment", storage_path=str(tmp_path))
        tune.Tuner(function, run_config=run).fit()
        for _ in range(2):
            results = tune.Tuner.restore(str(tmp_path / "experiment"), function).fit()
            assert [str(error) for error in results.errors] == ["ValueError: no"]

    def test_a_second_experiment_of_the_same_name_restores_without_the_first(self, tmp_path: Path) -> None:
        def function(config: dict[str, Any]) -> dict[str, int]:
            return {"x": config["x"]}

        run = tune.RunConfig(name="experiment", storage_path=str(tmp_path))
        for values in ([1, 2], [3]):
            tune.Tuner(function, param_space={"x": tune.grid_search(values)}, run_config=run).fit()
        results = tune.Tuner.restore(str(tmp_path / "experiment"), function).get_results()
        assert [result.metrics["x"] for result in results] == [3]

    def test_a_trial_whose_first_record_is_damaged_is_left_out(self, tmp_path: Path) -> None:
        def function(config: dict[str, Any]) -> dict[str, int]:
            return {"x": config["x"]}

        run = tune.RunConfig(name="experiment", storage_path=str(tmp_path))
        tune.Tuner(function, param_space={"x": tune.grid_search([1, 2, 3])}, run_config=run).fit()
        journal = tmp_path / "experiment" / "journal.jsonl"
        lines = journal.read_bytes().splitlines(keepends=True)
        second = next(index for index, line in enumerate(lines) if b'"added"' in line and b'"x":2' in line)
        lines[second] = lines[second].replace(b"added", b"ddade")
        journal.write_bytes(b"".join(lines))
        results = tune.Tuner.restore(str(tmp_path / "experiment"), function).get_results()
        assert [result.metrics["x"] for result in results] == [1, 3]

    def test_callbacks_get_their_state_back(self, tmp_path: Path) -> None:
        class Count(tune.Callback):
            def __init__(self) -> None:
                self.ended = 0

            def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
                self.ended += 1

            def get_state(self) -> dict[str, Any]:
                return {"ended": self.ended}

            def set_state(self, state: dict[str, Any]) -> None:
                self.ended += state["ended"]

        def function(config: dict[str, Any]) -> None:
            if config["x"] == 2 and not (tmp_path / "failed").exists():
                (tmp_path / "failed").touch()
                raise ValueError("once")

        run = tune.RunConfig(name="experiment", storage_path=str(tmp_path), callbacks=[Count()])
        tune.Tuner(function, param_space={"x": tune.grid_search([0, 1, 2])}, run_config=run).fit()
        restored = tune.Tuner.restore(str(tmp_path / "experiment"), function, restart_errored=True)
        restored.fit()
        [count] = restored._run_config.callbacks or []
        assert isinstance(count, Count)
        assert count.ended == 3

    def test_a_callback_that_cannot_be_pickled_runs_but_is_not_restored(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Count(tune.Callback):
            def __init__(self) -> None:
                self.lock = threading.Lock()
                self.results = 0

            def on_trial_result(
                self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any
            ) -> None:
                with self.lock:
                    self.results += 1

        class Keep(tune.Callback):
            state = 0

            def get_state(self) -> dict[str, Any]:
                return {"state": 5}

            def set_state(self, state: dict[str, Any]) -> None:
                self.state = state["state"]

        count = Count()
        run = tune.RunConfig(name="experiment", storage_path=str(tmp_path), callbacks=[count, Keep()])
        tune.Tuner(lambda config: {"x": 1}, run_config=run).fit()
        assert count.results == 1
        assert "The callback Count cannot be pickled" in caplog.text

        caplog.clear()
        restored = tune.Tuner.restore(str(tmp_path / "experiment"), lambda config: {"x": 1})
        assert len(restored.fit()) == 1
        assert "The callback Count does not run in the restored experiment" in caplog.text
        kept = restored._run_config.callbacks
        assert kept is not None
        assert [getattr(callback, "state", None) for callback in kept] == [None, 5]

    def test_a_folder_without_an_experiment_is_refused(self, tmp_path: Path) -> None:
        assert not tune.Tuner.can_restore(tmp_path)
        with pytest.raises(FileNotFoundError, match="holds no experiment to restore"):
            tune.Tuner.restore(str(tmp_path), lambda config: {})

    def test_a_second_program_in_the_same_folder_is_refused(self, tmp_path: Path) -> None:
        run = tune.RunConfig(name="experiment", storage_path=str(tmp_path))

        def function(config: dict[str, Any]) -> dict[str, int]:
            return {"x": 1}

        class Second(tune.Callback):
            def on_trial_start(self, **info: Any) -> None:
                with pytest.raises(tune.TuneError, match="another program"):
                    tune.Tuner(function, run_config=run).fit()

        first = tune.RunConfig(name="experiment", storage_path=str(tmp_path), callbacks=[Second()])
        assert tune.Tuner(function, run_config=first).fit().num_errors == 0


def test_a_program_that_is_killed_again_and_again_completes_every_trial_once(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(dedent(PROGRAM), encoding="utf-8")
    moments = random.Random(7)
    for _ in range(4):
        process = subprocess.Popen([sys.executable, str(program), str(tmp_path)], stdout=subprocess.DEVNULL)
        journal = tmp_path / "experiment" / "journal.jsonl"
        begun = journal.stat().st_size if journal.exists() else 0
        wanted = begun + moments.randrange(200, 3000)
        while process.poll() is None and (not journal.exists() or journal.stat().st_size < wanted):
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.splitlines()[-1:] == ["trials 60 60 60"], done.stderr
