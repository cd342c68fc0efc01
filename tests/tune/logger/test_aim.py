"""The callback for Aim, with a stand-in for the library and with the library itself."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import numpy as np
import pytest

from skate import tune
from skate.tune.experiment import Trial
from skate.tune.logger.aim import AimLoggerCallback

ENGINES = ("inline",)
pytestmark = pytest.mark.usefixtures("engine")

Fit = Callable[..., tune.ResultGrid]
Learn = Callable[[dict[str, Any]], None]


class Run:
    """Stands in for a run of Aim."""

    made: list[Run]

    def __init__(self, run_hash: str | None = None, **options: Any) -> None:
        self.continued, self.hash = run_hash, run_hash or f"hash-{len(self.made)}"
        self.options = options
        self.attributes: dict[str, Any] = {}
        self.tracked: list[dict[str, Any]] = []
        self.closed = 0
        self.made.append(self)

    def __setitem__(self, name: str, value: Any) -> None:
        self.attributes[name] = value

    def track(self, value: Any, **options: Any) -> None:
        self.tracked.append({"value": value, **options})

    def close(self) -> None:
        self.closed += 1

    def __reduce__(self) -> Any:
        raise TypeError("a run cannot be pickled")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    module = ModuleType("aim")
    module.Run = Run  # type: ignore[attr-defined]
    monkeypatch.setattr(Run, "made", [], raising=False)
    monkeypatch.setitem(sys.modules, "aim", module)
    return Run.made


def values(run: Run, name: str) -> list[tuple[int, Any]]:
    return [(each["step"], each["value"]) for each in run.tracked if each["name"] == f"ray/tune/{name}"]


def test_each_trial_is_a_run_with_parameters_and_metrics(
    fit: Fit, learn: Learn, runs: list[Run], tmp_path: Path
) -> None:
    space = {"lr": tune.grid_search([1.0, 3.0]), "model": {"layers": 2}}
    first, _ = fit(learn, space, run={"callbacks": [AimLoggerCallback()]})
    run, other = runs
    assert run.options == {
        "repo": str(tmp_path / "experiment"),
        "experiment": "experiment",
        "capture_terminal_logs": False,
        "system_tracking_interval": None,
    }
    assert run.attributes == {
        "hparams": {"lr": 1.0, "model/layers": 2},
        "trial_id": first.metrics["trial_id"],
        "trial_log_dir": first.path,
        "trial_ip": first.metrics["node_ip"],
    }
    assert values(other, "loss") == [(1, 3.0), (2, 1.5), (3, 1.0)]
    assert values(run, "eval/hits") == [(1, 1), (2, 2), (3, 3)]
    names = {each["name"] for each in run.tracked}
    assert {f"ray/tune/{name}" for name in ("pid", "note", "config/lr", "done", "timestamp")} & names == set()
    assert (run.closed, other.closed) == (1, 1)


def test_repository_name_and_metrics_may_be_chosen(fit: Fit, learn: Learn, runs: list[Run]) -> None:
    callback = AimLoggerCallback("there", "bears", metrics=["eval/hits"], log_system_params=True)
    fit(learn, {"lr": 1.0}, run={"callbacks": [callback]})
    (run,) = runs
    assert {"repo": "there", "experiment": "bears", "log_system_params": True}.items() <= run.options.items()
    assert {each["name"] for each in run.tracked} == {"ray/tune/eval/hits"}
    with pytest.raises(ValueError, match="`metrics` is empty"):
        AimLoggerCallback(metrics=[])


def test_a_restored_trial_continues_its_run(fit: Fit, learn: Learn, runs: list[Run], tmp_path: Path) -> None:
    (tmp_path / "fails").touch()
    space = {"lr": 1.0, "fails": str(tmp_path / "fails")}
    fit(learn, space, run={"callbacks": [AimLoggerCallback()]})
    (tmp_path / "fails").unlink()
    tune.Tuner.restore(str(tmp_path / "experiment"), learn, resume_errored=True).fit()
    assert [(run.continued, run.hash) for run in runs] == [(None, "hash-0"), ("hash-0", "hash-0")]
    assert values(runs[0], "loss") + values(runs[1], "loss") == [(1, 1.0), (2, 0.5), (3, 1 / 3)]


def test_only_finite_numbers_are_tracked_with_their_epoch_and_context(runs: list[Run]) -> None:
    callback, trial = AimLoggerCallback(), Trial("function")
    callback.log_trial_start(trial)
    result = {
        "training_iteration": 2,
        "timesteps_total": 50,
        "epoch": 7,
        "context": {"subset": "train"},
        "loss": np.float32(0.5),
        "bad": float("nan"),
        "worse": float("inf"),
        "list": [1, 2],
    }
    callback.log_trial_result(0, trial, result)
    tracked = {each.pop("name"): each for each in runs[0].tracked}
    about = {"step": 50, "epoch": 7, "context": {"subset": "train"}}
    assert tracked == {
        "ray/tune/loss": {"value": 0.5, **about},
        "ray/tune/timesteps_total": {"value": 50, **about},
    }


def test_parameters_that_aim_cannot_store_are_named_in_the_log(
    runs: list[Run], caplog: pytest.LogCaptureFixture
) -> None:
    config = {
        "text": "a",
        "list": [1],
        "none": None,
        "flag": np.bool_(True),
        "count": np.int32(3),
        "model": {"kind": object()},
    }
    with caplog.at_level(logging.INFO, "skate.tune"):
        AimLoggerCallback().log_trial_start(Trial("function", config=config))
    assert runs[0].attributes["hparams"] == {
        "text": "a",
        "list": [1],
        "none": None,
        "flag": True,
        "count": 3,
    }
    assert "Aim cannot store the parameters model/kind" in caplog.text


def test_a_callback_is_pickled_without_its_runs(runs: list[Run]) -> None:
    callback, trial = AimLoggerCallback(), Trial("function")
    callback.log_trial_start(trial)
    copy = cloudpickle.loads(cloudpickle.dumps(callback))
    copy.on_trial_error(0, [trial], trial)
    assert copy.get_state() == {"hashes": {trial.trial_id: "hash-0"}}
    assert runs[0].closed == 0


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aim", None)  # type: ignore[arg-type]
    with pytest.raises(ImportError, match="AimLoggerCallback needs aim: pip install aim"):
        AimLoggerCallback()


# Aim keeps the files of a repository open until the process ends.
PROGRAM = """
import sys
from pathlib import Path

import aim
import skate
from skate import tune
from skate.tune.logger.aim import AimLoggerCallback
from tests.tune.logger.conftest import learn

folder = Path(sys.argv[1])
skate.init(engine="inline")
fails = folder / "fails"
fails.touch()
tune.Tuner(
    learn,
    param_space={"lr": tune.grid_search([1.0, 2.0]), "model": {"layers": 2}, "fails": str(fails)},
    run_config=tune.RunConfig("experiment", str(folder), callbacks=[AimLoggerCallback()]),
).fit()
fails.unlink()
tune.Tuner.restore(str(folder / "experiment"), learn, resume_errored=True).fit()
repo = aim.Repo.from_path(str(folder / "experiment"))
for each in repo.list_all_runs():
    run = aim.Run(each, repo=repo, system_tracking_interval=None, capture_terminal_logs=False)
    (metric,) = [each for each in run.metrics() if each.name == "ray/tune/eval/hits"]
    values = sorted(metric.values.sparse_list()[1])
    print(run["hparams"]["lr"], run["hparams"]["model/layers"], run.experiment, values)
"""


def test_aim_itself_stores_the_trials(tmp_path: Path) -> None:
    pytest.importorskip("aim")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(done.stdout.splitlines()) == [
        "1.0 2 experiment [1, 2, 3]",
        "2.0 2 experiment [1, 2, 3]",
    ]
