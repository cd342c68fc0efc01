"""The callback for MLflow, and `setup_mlflow`, with a stand-in for the library and with the library itself."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import cloudpickle
import pytest

from skate import tune
from skate.air.integrations.mlflow import MLflowLoggerCallback, _end_runs, setup_mlflow
from skate.tune.experiment import Trial

ENGINES = ("inline",)
pytestmark = pytest.mark.usefixtures("engine")

Fit = Callable[..., tune.ResultGrid]
Learn = Callable[[dict[str, Any]], None]


class MlflowError(Exception):
    """Stands in for MlflowException."""


class Store(ModuleType):
    """Stands in for the module `mlflow` and for its client, and records the runs."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.runs: dict[str, SimpleNamespace] = {}
        self.experiments = {"Default": "0"}
        self.uris: list[Any] = []
        self.exceptions = SimpleNamespace(MlflowException=MlflowError)
        self.entities = SimpleNamespace(
            Metric=lambda key, value, timestamp, step: (key, value, step),
            Param=lambda key, value: (key, value),
        )
        self.active: dict[threading.Thread, Any] = {}

    def MlflowClient(self, tracking_uri: Any = None, registry_uri: Any = None) -> Store:  # noqa: N802  # MLflow's name
        self.uris.append((tracking_uri, registry_uri))
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a client cannot be pickled")

    def get_experiment(self, experiment_id: str) -> Any:
        if experiment_id not in self.experiments.values():
            raise MlflowError(experiment_id)

    def get_experiment_by_name(self, name: str) -> Any:
        found = self.experiments.get(name)
        return None if found is None else SimpleNamespace(experiment_id=found)

    def create_experiment(self, name: str, artifact_location: str | None = None) -> str:
        return self.experiments.setdefault(name, str(len(self.experiments)))

    def create_run(self, experiment_id: str, *, tags: dict[str, Any], run_name: str | None) -> Any:
        run_id = f"run-{len(self.runs)}"
        info = SimpleNamespace(run_id=run_id, status="RUNNING")
        run = SimpleNamespace(
            experiment=experiment_id, tags=tags, name=run_name, params={}, metrics=[], artifacts=[], info=info
        )
        self.runs[run_id] = run
        return run

    def get_run(self, run_id: str) -> Any:
        return self.runs[run_id]

    def update_run(self, run_id: str, status: str) -> None:
        self.runs[run_id].info.status = status

    set_terminated = update_run

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
        run = self.runs[run_id]
        assert run.info.status == "RUNNING"
        for name, value in params:
            assert run.params.setdefault(name, value) == value, "a parameter cannot change"
        run.metrics += metrics

    def log_artifacts(self, run_id: str, local_dir: str) -> None:
        self.runs[run_id].artifacts += sorted(os.listdir(local_dir))

    # The functions that log to the active run of the thread.

    def set_tracking_uri(self, uri: Any) -> None: ...

    def set_registry_uri(self, uri: Any) -> None: ...

    def active_run(self) -> Any:
        return self.active.get(threading.current_thread())

    def start_run(self, experiment_id: str, run_name: str | None, tags: dict[str, Any]) -> Any:
        run = self.active[threading.current_thread()] = self.create_run(
            experiment_id, tags=tags, run_name=run_name
        )
        return run

    def end_run(self) -> None:
        self.active.pop(threading.current_thread()).info.status = "FINISHED"

    def log_params(self, params: dict[str, Any]) -> None:
        self.active_run().params.update(params)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    for name in ("MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_TRACKING_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    store = Store()
    monkeypatch.setitem(sys.modules, "mlflow", store)
    return store


def test_each_trial_is_a_run_with_parameters_and_metrics(fit: Fit, learn: Learn, store: Store) -> None:
    callback = MLflowLoggerCallback("sqlite://", experiment_name="bears", tags={"by": "me"})
    space = {"lr": tune.grid_search([1.0, 3.0]), "model": {"layers": 2}}
    results = fit(learn, space, run={"callbacks": [callback]})
    first, second = store.runs.values()
    assert store.uris == [("sqlite://", None)]
    assert store.experiments["bears"] == first.experiment == second.experiment
    assert first.params == {"lr": "1.0", "model/layers": "2"}
    assert {first.name, second.name} == {f"learn_{result.metrics['trial_id']}" for result in results}
    assert first.tags == {"by": "me", "trial_name": first.name}
    assert [metric for metric in second.metrics if metric[0] == "loss"] == [
        ("loss", 3.0, 1),
        ("loss", 1.5, 2),
        ("loss", 1.0, 3),
    ]
    assert [metric for metric in first.metrics if metric[0] == "eval/hits"][-1] == ("eval/hits", 3.0, 3)
    assert {"note", "done", "trial_id"} & {metric[0] for metric in first.metrics} == set()
    assert [run.info.status for run in (first, second)] == ["FINISHED", "FINISHED"]


def test_parameters_and_the_folder_may_be_logged_at_the_end(fit: Fit, learn: Learn, store: Store) -> None:
    callback = MLflowLoggerCallback(save_artifact=True, log_params_on_trial_end=True)
    fit(learn, {"lr": 1.0}, run={"callbacks": [callback]})
    (run,) = store.runs.values()
    assert run.experiment == "0"
    assert run.params == {"lr": "1.0"}
    assert {"params.json", "result.json", "checkpoint_000000"} <= set(run.artifacts)


def test_a_restored_trial_continues_its_run(fit: Fit, learn: Learn, store: Store, tmp_path: Path) -> None:
    (tmp_path / "fails").touch()
    space = {"lr": 1.0, "fails": str(tmp_path / "fails")}
    fit(learn, space, run={"callbacks": [MLflowLoggerCallback(tracking_token="secret")]})
    (run,) = store.runs.values()
    assert run.info.status == "FAILED"
    assert b"secret" not in (tmp_path / "experiment" / "tuner.pkl").read_bytes()
    (tmp_path / "fails").unlink()
    tune.Tuner.restore(str(tmp_path / "experiment"), learn, resume_errored=True).fit()
    assert list(store.runs.values()) == [run]
    assert run.info.status == "FINISHED"
    assert [metric[2] for metric in run.metrics if metric[0] == "loss"] == [1, 2, 3]


def test_a_trial_that_starts_over_begins_a_new_run(
    fit: Fit, learn: Learn, store: Store, tmp_path: Path
) -> None:
    (tmp_path / "fails").touch()
    space = {"lr": 1.0, "fails": str(tmp_path / "fails")}
    fit(learn, space, run={"callbacks": [MLflowLoggerCallback()]})
    (tmp_path / "fails").unlink()
    tune.Tuner.restore(str(tmp_path / "experiment"), learn, restart_errored=True).fit()
    assert [run.info.status for run in store.runs.values()] == ["FAILED", "FINISHED"]


def test_a_trial_that_fails_and_is_restarted_has_one_run(
    fit: Fit, learn: Learn, store: Store, tmp_path: Path
) -> None:
    (tmp_path / "fails").touch()
    run = {"callbacks": [MLflowLoggerCallback()], "failure_config": tune.FailureConfig(max_failures=2)}
    fit(learn, {"lr": 1.0, "fails": str(tmp_path / "fails")}, run=run)
    assert [run.info.status for run in store.runs.values()] == ["FAILED"]


def test_a_new_configuration_is_seen_in_the_metrics(store: Store) -> None:
    callback, trial = MLflowLoggerCallback(), Trial("function", config={"lr": 1.0})
    callback.setup()
    for rate in (1.0, 2.0):
        trial.set_config({"lr": rate})
        callback.on_trial_start(0, [trial], trial)
        callback.on_trial_result(0, [trial], trial, {"training_iteration": 1, "config": trial.config})
    (run,) = store.runs.values()
    assert run.params == {"lr": "1.0"}
    assert [metric for metric in run.metrics if metric[0] == "config/lr"] == [
        ("config/lr", 1.0, 1),
        ("config/lr", 2.0, 1),
    ]


@pytest.mark.usefixtures("store")
def test_a_callback_is_pickled_without_its_connection() -> None:
    callback, trial = MLflowLoggerCallback(experiment_name="bears"), Trial("function")
    callback.setup()
    callback.log_trial_start(trial)
    copy = cloudpickle.loads(cloudpickle.dumps(callback))
    copy.log_trial_end(trial)  # it is not open there
    copy.set_state(callback.get_state())
    assert copy.get_state() == {"runs": {trial.trial_id: "run-0"}}


def test_a_trial_that_never_started_has_no_run(store: Store) -> None:
    MLflowLoggerCallback().on_trial_error(0, [], Trial("function"))
    assert store.runs == {}


def test_long_lists_are_sent_in_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(store, "log_batch", lambda run, metrics=(), params=(): sizes.append(len(params)))
    MLflowLoggerCallback().log_trial_start(Trial("function", config={f"p{i}": i for i in range(250)}))
    assert sizes == [100, 100, 50]


@pytest.mark.parametrize(
    ("variables", "name", "expected"),
    [
        ({}, None, "0"),
        ({}, "new", "2"),
        ({}, "old", "1"),
        ({"MLFLOW_EXPERIMENT_NAME": "old"}, None, "1"),
        ({"MLFLOW_EXPERIMENT_NAME": "old"}, "new", "2"),
        ({"MLFLOW_EXPERIMENT_ID": "1"}, "new", "1"),
        ({"MLFLOW_EXPERIMENT_ID": "1", "MLFLOW_EXPERIMENT_NAME": "new"}, None, "1"),
        ({"MLFLOW_EXPERIMENT_ID": "500"}, "old", "1"),
    ],
)
def test_the_environment_may_choose_the_experiment(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    name: str | None,
    expected: str,
) -> None:
    store.experiments["old"] = "1"
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    MLflowLoggerCallback(experiment_name=name).log_trial_start(Trial("function"))
    (run,) = store.runs.values()
    assert run.experiment == expected


@pytest.mark.usefixtures("store")
def test_an_experiment_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "500")
    with pytest.raises(ValueError, match="no experiment of the id '500'"):
        MLflowLoggerCallback().setup()
    monkeypatch.delenv("MLFLOW_EXPERIMENT_ID")
    with pytest.raises(ValueError, match="no MLflow experiment is given"):
        setup_mlflow()


def test_a_trial_starts_a_run_of_its_own(fit: Fit, store: Store) -> None:
    def function(config: dict[str, Any]) -> None:
        mlflow = setup_mlflow(config, create_experiment_if_not_exists=True, tags={"by": "me"})
        assert setup_mlflow({"again": 1}, create_experiment_if_not_exists=True) is mlflow
        tune.report({"loss": 1.0})

    results = fit(function, {"lr": tune.grid_search([1, 2]), "model": {"layers": 2}})
    assert not results.errors
    _end_runs()
    first, second = store.runs.values()
    assert {first.name, second.name} == {f"function_{result.metrics['trial_id']}" for result in results}
    assert first.experiment == store.experiments["experiment"]
    assert first.params == {"lr": 1, "model/layers": 2, "again": 1}
    assert (first.tags, first.info.status, second.info.status) == ({"by": "me"}, "FINISHED", "FINISHED")


def test_the_run_of_an_earlier_trial_in_the_same_thread_ends(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for trial in ("a", "b"):
        names = SimpleNamespace(trial_id=trial, trial_name=trial, experiment="Default", rank=0)
        monkeypatch.setattr("skate.air.integrations.mlflow.current_names", lambda names=names: names)
        setup_mlflow()
    assert [run.info.status for run in store.runs.values()] == ["FINISHED", "RUNNING"]
    _end_runs()


def test_mlflow_itself_stores_the_trials(
    fit: Fit, learn: Learn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    uri = (tmp_path / "mlruns").as_uri()
    (tmp_path / "fails").touch()
    space = {"lr": tune.grid_search([1.0, 2.0]), "model": {"layers": 2}, "fails": str(tmp_path / "fails")}
    callback = MLflowLoggerCallback(uri, experiment_name="bears", tags={"by": "me"}, save_artifact=True)
    fit(learn, space, run={"callbacks": [callback]})
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("bears").experiment_id
    runs = client.search_runs([experiment])
    assert [run.info.status for run in runs] == ["FAILED", "FAILED"]
    (tmp_path / "fails").unlink()
    tune.Tuner.restore(str(tmp_path / "experiment"), learn, resume_errored=True).fit()
    runs = client.search_runs([experiment])
    assert [run.info.status for run in runs] == ["FINISHED", "FINISHED"]
    assert {run.data.params["lr"] for run in runs} == {"1.0", "2.0"}
    assert runs[0].data.params["model/layers"] == "2"
    history = client.get_metric_history(runs[0].info.run_id, "eval/hits")
    assert [(each.step, each.value) for each in history] == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert "result.json" in {item.path for item in client.list_artifacts(runs[0].info.run_id)}


def test_a_trial_logs_to_mlflow_itself(fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "mlruns").as_uri()

    def function(config: dict[str, Any]) -> None:
        tracker = setup_mlflow(config, uri, experiment_name="bears", create_experiment_if_not_exists=True)
        tracker.log_metric("loss", config["lr"], step=1)
        tune.report({"loss": 1.0})

    results = fit(function, {"lr": tune.grid_search([1, 2])})
    assert not results.errors
    _end_runs()
    client = mlflow.MlflowClient(tracking_uri=uri)
    runs = client.search_runs([client.get_experiment_by_name("bears").experiment_id])
    assert {(run.data.params["lr"], run.data.metrics["loss"]) for run in runs} == {("1", 1.0), ("2", 2.0)}
    assert {run.info.status for run in runs} == {"FINISHED"}
    mlflow.set_tracking_uri(None)
