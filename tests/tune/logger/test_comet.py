"""The callback for Comet, with a stand-in for the library and with the library itself."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import cloudpickle
import pytest

from skate import tune
from skate.air.integrations.comet import CometLoggerCallback
from skate.tune.experiment import Trial

ENGINES = ("inline",)
pytestmark = pytest.mark.usefixtures("engine")

Fit = Callable[..., tune.ResultGrid]
Learn = Callable[[dict[str, Any]], None]

OFF = dict.fromkeys(
    ("auto_output_logging", "log_git_metadata", "log_git_patch", "log_env_cpu", "log_env_gpu"), False
)


class Experiment:
    """Stands in for the experiments of Comet."""

    def __init__(self, kind: str, key: str, options: dict[str, Any]) -> None:
        self.kind, self.key, self.options = kind, key, options
        self.name = ""
        self.tags: list[str] = []
        self.parameters: dict[str, Any] = {}
        self.metrics: list[tuple[int, dict[str, Any]]] = []
        self.others: dict[str, Any] = {}
        self.system: dict[str, Any] = {}
        self.curves: list[Any] = []
        self.artifacts: list[Any] = []
        self.ended = 0

    def get_key(self) -> str:
        return self.key

    def set_name(self, name: str) -> None:
        self.name = name

    def add_tags(self, tags: list[str]) -> None:
        self.tags += tags

    def log_parameters(self, parameters: dict[str, Any]) -> None:
        self.parameters.update(parameters)

    def log_other(self, name: str, value: Any) -> None:
        self.others[name] = value

    def log_others(self, values: dict[str, Any]) -> None:
        self.others.update(values)

    def log_system_info(self, name: str, value: Any) -> None:
        self.system[name] = value

    def log_metrics(self, metrics: dict[str, Any], step: int) -> None:
        self.metrics.append((step, metrics))

    def log_curve(self, name: str, x: Any, y: Any, step: int) -> None:
        self.curves.append((name, list(x), list(y), step))

    def log_artifact(self, artifact: Any) -> None:
        self.artifacts.append((artifact.name, artifact.artifact_type, artifact.files))

    def end(self) -> None:
        self.ended += 1

    def __reduce__(self) -> Any:
        raise TypeError("an experiment cannot be pickled")


class Comet(ModuleType):
    """Stands in for the module."""

    def __init__(self) -> None:
        super().__init__("comet_ml")
        self.made: list[Experiment] = []
        self.config = ModuleType("comet_ml.config")
        self.config.set_global_experiment = lambda experiment: None  # type: ignore[attr-defined]
        for kind in ("Experiment", "OfflineExperiment", "ExistingExperiment", "ExistingOfflineExperiment"):
            setattr(self, kind, lambda kind=kind, **options: self.make(kind, options))

    def make(self, kind: str, options: dict[str, Any]) -> Experiment:
        key = options.pop("experiment_key", f"key-{len(self.made)}")
        self.made.append(Experiment(kind, key, options))
        return self.made[-1]

    def Artifact(self, **options: Any) -> Any:  # noqa: N802  # Comet's name
        artifact = SimpleNamespace(files=[], **options)
        artifact.add = lambda path, logical_path: artifact.files.append(logical_path)
        return artifact


@pytest.fixture
def comet(monkeypatch: pytest.MonkeyPatch) -> Comet:
    monkeypatch.setenv("COMET_DISABLE_AUTO_LOGGING", "1")
    module = Comet()
    monkeypatch.setitem(sys.modules, "comet_ml", module)
    monkeypatch.setitem(sys.modules, "comet_ml.config", module.config)
    return module


def test_each_trial_is_an_experiment_with_parameters_and_metrics(
    fit: Fit, learn: Learn, comet: Comet
) -> None:
    callback = CometLoggerCallback(
        tags=["a", "b"], save_checkpoints=True, project_name="bears", log_env_cpu=True
    )
    space = {"lr": tune.grid_search([1.0, 3.0]), "model": {"layers": 2}, "callbacks": [learn]}
    first, _ = fit(learn, space, run={"callbacks": [callback]})
    experiment, other = comet.made
    trial_id = first.metrics["trial_id"]
    assert experiment.kind == "Experiment"
    assert experiment.options == {**OFF, "log_env_cpu": True, "project_name": "bears"}
    assert (experiment.name, experiment.tags) == (f"learn_{trial_id}", ["a", "b"])
    assert experiment.parameters == {"lr": 1.0, "model/layers": 2}
    assert [(step, metrics["loss"], metrics["eval/hits"]) for step, metrics in other.metrics] == [
        (1, 3.0, 1),
        (2, 1.5, 2),
        (3, 1.0, 3),
    ]
    assert {"note", "done", "trial_id", "config/lr", "pid"} & set(experiment.metrics[0][1]) == set()
    assert experiment.others["trial_id"] == trial_id
    assert experiment.system["pid"] == os.getpid()
    assert experiment.artifacts == [(f"checkpoint_learn_{trial_id}", "model", ["step"])] * 3
    assert (experiment.ended, other.ended) == (1, 1)


@pytest.mark.parametrize("online", [True, False])
def test_a_restored_trial_continues_its_experiment(
    fit: Fit, learn: Learn, comet: Comet, tmp_path: Path, online: bool
) -> None:
    (tmp_path / "fails").touch()
    space = {"lr": 1.0, "fails": str(tmp_path / "fails")}
    fit(learn, space, run={"callbacks": [CometLoggerCallback(online, api_key="secret key")]})
    assert b"secret key" not in (tmp_path / "experiment" / "tuner.pkl").read_bytes()
    (tmp_path / "fails").unlink()
    tune.Tuner.restore(str(tmp_path / "experiment"), learn, resume_errored=True).fit()
    suffix = "Experiment" if online else "OfflineExperiment"
    assert [(each.kind, each.key) for each in comet.made] == [
        (suffix, "key-0"),
        (f"Existing{suffix}", "key-0"),
    ]
    assert comet.made[0].options["api_key"] == "secret key"
    assert [step for each in comet.made for step, _ in each.metrics] == [1, 2, 3]


def test_a_new_configuration_and_curves_are_logged(comet: Comet) -> None:
    callback, trial = CometLoggerCallback(), Trial("function", config={"lr": 1.0})
    callback.on_trial_start(0, [trial], trial)
    trial.set_config({"lr": 2.0})
    callback.on_trial_start(0, [trial], trial)
    callback.on_trial_result(
        0, [], trial, {"training_iteration": 4, "hist_stats": {"episode_reward": [1, 0]}}
    )
    (experiment,) = comet.made
    assert experiment.parameters == {"lr": 2.0}
    assert experiment.curves == [("hist_stats/episode_reward", [0, 1], [1, 0], 4)]
    assert experiment.metrics == [(4, {"training_iteration": 4})]


def test_a_callback_is_pickled_without_its_experiments(comet: Comet) -> None:
    callback, trial = CometLoggerCallback(), Trial("function")
    callback.log_trial_start(trial)
    copy = cloudpickle.loads(cloudpickle.dumps(callback))
    copy.on_trial_error(0, [trial], trial)
    assert copy.get_state() == {"keys": {trial.trial_id: "key-0"}}
    assert comet.made[0].ended == 0


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "comet_ml", None)  # type: ignore[arg-type]
    with pytest.raises(ImportError, match="CometLoggerCallback needs comet_ml: pip install comet_ml"):
        CometLoggerCallback()


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in {
        "COMET_DISABLE_AUTO_LOGGING": "1",
        "COMET_LOGGING_CONSOLE": "ERROR",
        "COMET_ERROR_TRACKING_ENABLE": "0",
    }.items():
        monkeypatch.setenv(name, value)
    return pytest.importorskip("comet_ml")


def test_comet_itself_writes_an_archive_of_each_trial(
    fit: Fit, learn: Learn, real: Any, tmp_path: Path
) -> None:
    callback = CometLoggerCallback(
        online=False,
        tags=["mine"],
        project_name="bears",
        offline_directory=str(tmp_path / "comet"),
        log_env_host=False,
    )
    fit(learn, {"lr": tune.grid_search([1.0, 2.0]), "model": {"layers": 2}}, run={"callbacks": [callback]})
    archives = sorted((tmp_path / "comet").glob("*.zip"))
    assert len(archives) == 2
    for path in archives:
        with zipfile.ZipFile(path) as archive:
            lines = archive.read("messages.json").decode().splitlines()
        messages = [json.loads(line) for line in lines]
        metrics = [each["payload"]["metric"] for each in messages if each["type"] == "metric_msg"]
        steps = [(each["metricName"], each["step"]) for each in metrics]
        assert [step for name, step in steps if name == "eval/hits"] == [1, 2, 3]
        parameters = {
            each["payload"]["param"]["paramName"] for each in messages if each["type"] == "parameter_msg"
        }
        assert {"lr", "model/layers"} <= parameters
