"""Callbacks for experiment trackers, with stand-ins that record the calls."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from skate import train
from skate.air.integrations._rank import Names
from skate.air.integrations.mlflow import MLflowLoggerCallback, setup_mlflow
from skate.air.integrations.wandb import WandbLoggerCallback, setup_wandb
from skate.train import Checkpoint, Result, RunConfig

Fit = Callable[..., Result]
RunConfigs = Callable[..., RunConfig]


class Client:
    """Stands in for MLflow's client."""

    def __init__(self, tracking_uri: str | None = None, registry_uri: str | None = None) -> None:
        self.told: list[tuple[Any, ...]] = [("client", tracking_uri, registry_uri)]

    def get_experiment_by_name(self, name: str) -> None:
        return None

    def create_experiment(self, name: str, artifact_location: str | None) -> str:
        return f"id of {name}"

    def create_run(self, experiment_id: str, *, tags: dict[str, Any], run_name: str) -> SimpleNamespace:
        self.told.append(("run", experiment_id, tags, run_name))
        return SimpleNamespace(info=SimpleNamespace(run_id="run id"))

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
        self.told += [*metrics, *params]

    def log_artifacts(self, run_id: str, local_dir: str) -> None:
        self.told.append(("artifacts", Path(local_dir).name))

    def set_terminated(self, run_id: str, status: str) -> None:
        self.told.append(("ended", status))


class Tracker:
    """Stands in for a run of wandb's, and for the module."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def Settings(self, **options: Any) -> dict[str, Any]:  # noqa: N802  # wandb's name
        return options

    def init(self, **options: Any) -> Tracker:
        self.told.append(("init", options))
        return self

    def log(self, metrics: dict[str, Any]) -> None:
        self.told.append(("log", metrics))

    def Artifact(self, **options: Any) -> SimpleNamespace:  # noqa: N802  # wandb's name
        return SimpleNamespace(add_dir=lambda folder: self.told.append(("files", sorted(os.listdir(folder)))))

    def log_artifact(self, artifact: Any) -> None:
        self.told.append(("artifact",))

    def finish(self, exit_code: int) -> None:
        self.told.append(("finish", exit_code))


def learn(config: dict[str, Any]) -> None:
    for step in range(2):
        train.report({"loss": 1 / (step + 1), "eval": {"loss": 2.0}, "note": "text"})
    if config["fails"]:
        raise ValueError("bad weights")


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("mlflow")
    module.MlflowClient = Client  # type: ignore[attr-defined]
    module.entities = SimpleNamespace(  # type: ignore[attr-defined]
        Metric=lambda key, value, timestamp, step: ("metric", key, value, step),
        Param=lambda key, value: ("param", key, value),
    )
    monkeypatch.setitem(sys.modules, "mlflow", module)


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Tracker:
    tracker = Tracker()
    monkeypatch.setitem(sys.modules, "wandb", tracker)  # type: ignore[arg-type]  # it has what is used of the module
    return tracker


@pytest.mark.usefixtures("mlflow")
def test_mlflow_has_settings_and_metrics_and_the_end_of_a_run(fit: Fit, run_config: RunConfigs) -> None:
    callback = MLflowLoggerCallback(
        "sqlite://", experiment_name="bears", tags={"by": "me"}, save_artifact=True
    )
    fit(learn, 0, config={"fails": False}, run=run_config(callbacks=[callback]))
    assert callback._client.told == [
        ("client", "sqlite://", None),
        ("run", "id of bears", {"by": "me", "trial_name": "run"}, "run"),
        ("param", "fails", "False"),
        ("metric", "loss", 1.0, 0),
        ("metric", "eval/loss", 2.0, 0),
        ("metric", "loss", 0.5, 1),
        ("metric", "eval/loss", 2.0, 1),
        ("artifacts", "run"),
        ("ended", "FINISHED"),
    ]


@pytest.mark.usefixtures("mlflow")
def test_mlflow_hears_that_a_run_has_failed(fit: Fit, run_config: RunConfigs) -> None:
    callback = MLflowLoggerCallback(log_params_on_trial_end=True)
    with pytest.raises(train.WorkerGroupError):
        fit(learn, 0, config={"fails": True}, run=run_config(callbacks=[callback]))
    assert callback._client.told[-2:] == [("param", "fails", "True"), ("ended", "FAILED")]


def test_wandb_has_settings_and_metrics_and_checkpoints(
    fit: Fit, run_config: RunConfigs, wandb: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def saves() -> None:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "model").write_text("weights")
            train.report({"loss": 1.0, "secret": 2}, checkpoint=Checkpoint(folder))

    monkeypatch.setenv("WANDB_PROJECT_NAME", "bears")
    callback = WandbLoggerCallback(excludes=["secret"], upload_checkpoints=True, mode="offline")
    fit(saves, 0, run=run_config(callbacks=[callback]))
    shared = {"reinit": "create_new", "allow_val_change": True, "settings": {"console": "off"}}
    named = {"name": "run", "group": "run", "project": "bears", "mode": "offline"}
    assert wandb.told == [
        ("init", {"config": {}, **named, **shared}),
        ("log", {"loss": 1.0}),
        ("files", ["model"]),
        ("artifact",),
        ("finish", 0),
    ]


def test_wandb_gets_its_key(wandb: Tracker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "")
    (tmp_path / "key").write_text("from a file\n")
    WandbLoggerCallback(api_key_file=str(tmp_path / "key"))
    assert os.environ["WANDB_API_KEY"] == "from a file"
    with pytest.raises(ValueError, match="both given"):
        WandbLoggerCallback(api_key="a", api_key_file="b")


@pytest.mark.parametrize(
    ("callback", "package"), [(MLflowLoggerCallback, "mlflow"), (WandbLoggerCallback, "wandb")]
)
def test_a_tracker_that_is_missing_is_named(
    callback: Callable[[], Any], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # type: ignore[arg-type]
    with pytest.raises(ImportError, match=f"needs {package}: pip install {package}"):
        callback()


def test_a_training_function_begins_a_run_of_wandb(
    fit: Fit, run_config: RunConfigs, wandb: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "")

    def function() -> None:
        run = setup_wandb({"lr": 0.1}, api_key="key", project="bears")
        run.log({"loss": 1.0})

    fit(function, 0, run=run_config())
    named = {"group": "run", "id": "run", "name": "run", "resume": "allow", "reinit": "finish_previous"}
    assert wandb.told == [
        ("init", {"config": {"lr": 0.1}, "project": "bears", **named}),
        ("log", {"loss": 1.0}),
    ]
    assert os.environ["WANDB_API_KEY"] == "key"
    with pytest.raises(ValueError, match="are both given"):
        setup_wandb(api_key="key", api_key_file="file")


@pytest.mark.usefixtures("mlflow")
def test_a_training_function_begins_a_run_of_mlflow(fit: Fit, run_config: RunConfigs) -> None:
    told: list[Any] = []
    module: Any = sys.modules["mlflow"]
    module.set_tracking_uri = module.set_registry_uri = told.append
    module.active_run = lambda: None
    module.start_run = lambda **options: (
        told.append(options) or SimpleNamespace(info=SimpleNamespace(run_id="run id"))
    )
    module.log_params = told.append

    def function() -> None:
        with pytest.raises(ValueError, match="no experiment of the name 'run'"):
            setup_mlflow()
        told.clear()
        assert setup_mlflow({"lr": 0.1}, "sqlite://", create_experiment_if_not_exists=True) is module

    fit(function, 0, run=run_config())
    assert told == [
        "sqlite://",
        None,
        {"experiment_id": "id of run", "run_name": "run", "tags": {}},
        {"lr": 0.1},
    ]


def test_only_rank_0_talks_to_a_tracker(wandb: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "skate.air.integrations.wandb.current_names", lambda: Names("run", "run", "run", rank=1)
    )
    with setup_wandb() as run:
        run.config.update({"lr": 0.1})
        run.log({"loss": 1.0})
    assert wandb.told == []
