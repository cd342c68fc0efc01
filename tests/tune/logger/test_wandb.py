"""The callback for Weights & Biases, and `setup_wandb`, with a stand-in for the library and with the library itself."""

from __future__ import annotations

import os
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from weakref import WeakSet

import cloudpickle
import numpy as np
import pytest

from skate import tune
from skate.air.integrations import wandb as wandb_integration
from skate.air.integrations.wandb import WandbLoggerCallback, setup_wandb
from skate.tune.experiment import Trial

ENGINES = ("inline",)
pytestmark = pytest.mark.usefixtures("engine")

Fit = Callable[..., tune.ResultGrid]
Learn = Callable[[dict[str, Any]], None]


class Value:
    """Stands in for the values that wandb logs beside numbers."""

    def __init__(self, data: Any = None, **options: Any) -> None:
        self.shape, self.options = np.shape(data), options


class Config(dict[str, Any]):
    """Stands in for the configuration of a run."""

    def update(self, values: dict[str, Any], allow_val_change: bool) -> None:  # type: ignore[override]
        assert allow_val_change
        super().update(values)


class Run:
    """Stands in for a run."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options, self.config = options, Config(options.pop("config"))
        self.logged: list[tuple[Any, dict[str, Any]]] = []
        self.artifacts: list[Any] = []
        self.exit_code: int | None = None

    def log(self, metrics: dict[str, Any], step: int | None = None) -> None:
        self.logged.append((step, metrics))

    def log_artifact(self, artifact: Any) -> None:
        self.artifacts.append((artifact.name, artifact.type, artifact.files))

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code

    def __reduce__(self) -> Any:
        raise TypeError("a run cannot be pickled")


class Wandb(ModuleType):
    """Stands in for the module."""

    Image = Video = Value
    data_types = SimpleNamespace(WBValue=Value)

    def __init__(self) -> None:
        super().__init__("wandb")
        self.runs: list[Run] = []
        self.logged_in = False

    def init(self, **options: Any) -> Run:
        self.runs.append(Run(options))
        return self.runs[-1]

    def login(self, *, prompt: bool, verify: bool) -> bool:
        return self.logged_in

    def Settings(self, **options: Any) -> dict[str, Any]:  # noqa: N802  # wandb's name
        return options

    def Artifact(self, **options: Any) -> Any:  # noqa: N802  # wandb's name
        artifact = SimpleNamespace(files=[], **options)
        artifact.add_dir = lambda folder: artifact.files.extend(sorted(os.listdir(folder)))
        return artifact


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("WANDB_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_API_KEY", "")  # so that the value of the test does not stay


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch, environment: None) -> Wandb:
    module = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setattr(wandb_integration, "_users", WeakSet())  # other tests may have used this thread
    return module


def test_each_trial_is_a_run_with_its_configuration_and_metrics(fit: Fit, learn: Learn, wandb: Wandb) -> None:
    callback = WandbLoggerCallback("bears", api_key="key", upload_checkpoints=True, notes="mine")
    space = {"lr": tune.grid_search([1.0, 3.0]), "model": {"layers": 2}, "callbacks": [learn]}
    first, _ = fit(learn, space, run={"callbacks": [callback]})
    run, other = wandb.runs
    trial_id = first.metrics["trial_id"]
    assert run.options == {
        "id": trial_id,
        "name": f"learn_{trial_id}",
        "group": "experiment",
        "project": "bears",
        "dir": first.path,
        "resume": None,
        "reinit": "create_new",
        "allow_val_change": True,
        "settings": {"console": "off"},
        "notes": "mine",
    }
    assert {"lr": 1.0, "model": {"layers": 2}, "trial_id": trial_id, "pid": os.getpid()}.items() <= (
        run.config.items()
    )
    assert "callbacks" not in run.config
    assert [(step, logged["loss"], logged["eval/hits"]) for step, logged in other.logged] == [
        (1, 3.0, 1),
        (2, 1.5, 2),
        (3, 1.0, 3),
    ]
    assert {"note", "done", "config/lr", "trial_id"} & set(run.logged[0][1]) == set()
    assert run.artifacts == [(f"checkpoint_learn_{trial_id}", "model", ["step"])] * 3
    assert (run.exit_code, other.exit_code) == (0, 0)
    assert os.environ["WANDB_API_KEY"] == "key"


def test_excluded_names_are_in_neither_metrics_nor_configuration(
    fit: Fit, learn: Learn, wandb: Wandb
) -> None:
    callback = WandbLoggerCallback(
        "bears", api_key="key", excludes=["eval", "secret", "pid"], log_config=True
    )
    fit(learn, {"lr": 1.0, "secret": 2.0}, run={"callbacks": [callback]})
    (run,) = wandb.runs
    assert {"loss", "config/lr", "training_iteration"} <= set(run.logged[0][1])
    assert {"eval/hits"} & set(run.logged[0][1]) == set()
    assert {"secret", "pid"} & set(run.config) == set()


def test_a_failed_trial_has_a_failed_run_that_a_restored_trial_continues(
    fit: Fit, learn: Learn, wandb: Wandb, tmp_path: Path
) -> None:
    (tmp_path / "fails").touch()
    space = {"lr": 1.0, "fails": str(tmp_path / "fails")}
    fit(learn, space, run={"callbacks": [WandbLoggerCallback("bears", api_key="secret key")]})
    assert [run.exit_code for run in wandb.runs] == [1]
    assert b"secret key" not in (tmp_path / "experiment" / "tuner.pkl").read_bytes()
    (tmp_path / "fails").unlink()
    tune.Tuner.restore(str(tmp_path / "experiment"), learn, resume_errored=True).fit()
    before, after = wandb.runs
    assert before.options["id"] == after.options["id"]
    assert after.options["resume"] == "allow"
    assert [step for step, _ in before.logged + after.logged] == [1, 2, 3]


def test_a_new_configuration_replaces_the_old_one(wandb: Wandb) -> None:
    callback, trial = WandbLoggerCallback("bears", api_key="key"), Trial("function", config={"lr": 1.0})
    callback.on_trial_start(0, [trial], trial)
    trial.set_config({"lr": 2.0})
    callback.on_trial_start(0, [trial], trial)
    (run,) = wandb.runs
    assert run.config == {"lr": 2.0}


def test_media_are_logged_and_other_objects_are_not(wandb: Wandb) -> None:
    callback = WandbLoggerCallback(
        "bears", api_key="key", image_kwargs={"caption": "a"}, video_kwargs={"fps": 4}
    )
    trial = Trial("function")
    callback.log_trial_start(trial)
    result = {
        "training_iteration": 1,
        "scalar": np.float32(2.0),
        "one": np.asarray([3.0]),
        "flag": True,
        "image": np.zeros((2, 2, 3)),
        "images": np.zeros((5, 2, 2, 3)),
        "video": np.zeros((1, 7, 3, 2, 2)),
        "table": Value(),
        "tables": [Value(), Value()],
        "vector": np.zeros(4),
        "text": "text",
        "list": [1, 2],
    }
    callback.log_trial_result(1, trial, result)
    ((_, logged),) = wandb.runs[0].logged
    assert {name: logged[name] for name in ("scalar", "one", "flag")} == {
        "scalar": 2.0,
        "one": 3.0,
        "flag": True,
    }
    assert (logged["image"].shape, logged["image"].options) == ((2, 2, 3), {"caption": "a"})
    assert [each.shape for each in logged["images"]] == [(2, 2, 3)] * 5
    assert (logged["video"].shape, logged["video"].options) == ((7, 3, 2, 2), {"fps": 4})
    assert {"vector", "text", "list"} & set(logged) == set()
    assert {"table", "tables"} <= set(logged)


def test_a_callback_is_pickled_without_its_runs(wandb: Wandb) -> None:
    callback, trial = WandbLoggerCallback("bears", api_key="key"), Trial("function")
    callback.log_trial_start(trial)
    copy = cloudpickle.loads(cloudpickle.dumps(callback))
    copy.log_trial_end(trial)
    assert wandb.runs[0].exit_code is None


def test_the_end_waits_for_uploads_only_so_long(wandb: Wandb, monkeypatch: pytest.MonkeyPatch) -> None:
    uploaded = threading.Event()
    monkeypatch.setattr(Run, "finish", lambda run, exit_code: uploaded.wait(60))
    callback, trial = WandbLoggerCallback("bears", api_key="key", upload_timeout=0), Trial("function")
    callback.log_trial_start(trial)
    callback.log_trial_end(trial)
    (thread,) = callback._finishing
    callback.on_experiment_end([trial])
    assert thread.is_alive()
    uploaded.set()
    thread.join()


class TestKeys:
    def test_without_a_key_the_remedies_are_named(self, wandb: Wandb) -> None:
        with pytest.raises(ValueError, match=r"no API key .*set \$WANDB_API_KEY.*WANDB_MODE=offline"):
            WandbLoggerCallback("bears").setup()

    @pytest.mark.parametrize("mode", ["offline", "disabled"])
    def test_none_is_needed_offline(self, wandb: Wandb, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
        WandbLoggerCallback("bears", mode=mode).setup()
        monkeypatch.setenv("WANDB_MODE", mode)
        WandbLoggerCallback("bears").setup()

    def test_the_first_of_argument_file_variable_login_and_hook_counts(
        self, wandb: Wandb, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        hooks = ModuleType("hooks")
        hooks.key = lambda: "from the hook"  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "hooks", hooks)
        monkeypatch.setenv("WANDB_SETUP_API_KEY_HOOK", "hooks.key")
        wandb.logged_in = True
        WandbLoggerCallback("bears").setup()
        assert os.environ["WANDB_API_KEY"] == ""
        wandb.logged_in = False
        WandbLoggerCallback("bears").setup()
        assert os.environ["WANDB_API_KEY"] == "from the hook"
        (tmp_path / "key").write_text("from the file\n")
        WandbLoggerCallback("bears", api_key_file=str(tmp_path / "key")).setup()
        assert os.environ["WANDB_API_KEY"] == "from the file"
        WandbLoggerCallback("bears", api_key="from the argument").setup()
        assert os.environ["WANDB_API_KEY"] == "from the argument"

    def test_a_hook_that_does_not_exist_is_named(self, wandb: Wandb, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WANDB_SETUP_API_KEY_HOOK", "hooks.missing")
        with pytest.raises(ValueError, match=r"\$WANDB_SETUP_API_KEY_HOOK must be .*not 'hooks.missing'"):
            WandbLoggerCallback("bears").setup()

    def test_older_versions_know_whether_a_user_is_logged_in(
        self, wandb: Wandb, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Wandb, "login", lambda self, key=None: pytest.fail("it would ask"))
        wandb.api = SimpleNamespace(api_key="key")  # type: ignore[attr-defined]
        WandbLoggerCallback("bears").setup()


class TestProjects:
    def test_a_project_is_needed(self, wandb: Wandb) -> None:
        with pytest.raises(ValueError, match=r"give it `project`, or set \$WANDB_PROJECT_NAME"):
            WandbLoggerCallback(api_key="key").setup()

    def test_the_environment_names_project_and_group(
        self, wandb: Wandb, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def locate() -> None:
            monkeypatch.setenv("WANDB_PROJECT_NAME", "bears")
            monkeypatch.setenv("WANDB_GROUP_NAME", "brown")

        hooks = ModuleType("hooks")
        hooks.locate = locate  # type: ignore[attr-defined]
        hooks.process = lambda run: run.config.update({"seen": True}, allow_val_change=True)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "hooks", hooks)
        monkeypatch.setenv("WANDB_POPULATE_RUN_LOCATION_HOOK", "hooks.locate")
        monkeypatch.setenv("WANDB_PROCESS_RUN_INFO_HOOK", "hooks.process")
        callback = WandbLoggerCallback(api_key="key")
        callback.setup()
        callback.log_trial_start(Trial("function"))
        (run,) = wandb.runs
        assert (run.options["project"], run.options["group"]) == ("bears", "brown")
        assert run.config == {"seen": True}

    def test_a_failing_hook_for_runs_is_logged(
        self, wandb: Wandb, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("WANDB_PROCESS_RUN_INFO_HOOK", "hooks.missing")
        WandbLoggerCallback("bears", api_key="key").log_trial_start(Trial("function"))
        assert "WANDB_PROCESS_RUN_INFO_HOOK=hooks.missing failed" in caplog.text


def test_a_trial_starts_a_run_of_its_own(fit: Fit, wandb: Wandb) -> None:
    def function(config: dict[str, Any]) -> None:
        run = setup_wandb(config, api_key="key", project="bears")
        run.log({"loss": config["lr"]})
        tune.report({"loss": 1.0})

    results = fit(function, {"lr": tune.grid_search([1, 2]), "kind": {int}})
    assert not results.errors
    ids = [result.metrics["trial_id"] for result in results]
    assert [run.options["id"] for run in wandb.runs] == ids
    first, second = (run.options for run in wandb.runs)
    assert first == {
        "id": ids[0],
        "name": f"function_{ids[0]}",
        "group": "experiment",
        "project": "bears",
        "resume": "allow",
        "reinit": "finish_previous",
    }
    assert second["reinit"] in ("finish_previous", "create_new")  # the first function may still run
    assert wandb.runs[0].config == {"lr": 1, "kind": ["<class 'int'>"]}


def test_functions_that_share_a_process_keep_their_runs(wandb: Wandb) -> None:
    started, ends = threading.Event(), threading.Event()

    def function() -> None:
        setup_wandb(api_key="key")
        started.set()
        ends.wait(60)

    thread = threading.Thread(target=function)
    thread.start()
    started.wait(60)
    setup_wandb(api_key="key", trial_id="b", trial_name="second", group="mine")
    ends.set()
    thread.join()
    setup_wandb(api_key="key")
    assert [run.options["reinit"] for run in wandb.runs] == [
        "finish_previous",
        "create_new",
        "finish_previous",
    ]
    assert wandb.runs[1].options.items() >= {"id": "b", "name": "second", "group": "mine"}.items()


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch, environment: None) -> Iterator[Any]:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    yield wandb
    wandb.teardown()


def records(folder: Path) -> list[Any]:
    """Return the records of an offline run, whose file is a log in the format of LevelDB."""
    from wandb.proto import wandb_internal_pb2

    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    data = path.read_bytes()
    found, position, payload = [], 7, b""
    while position < len(data):
        left = 32768 - position % 32768
        if left < 7:  # a block ends, and no header fits into it
            position += left
            continue
        length, kind = struct.unpack("<HB", data[position + 4 : position + 7])
        payload += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(payload)
            found.append(record)
            payload = b""
    return found


def test_wandb_itself_stores_the_trials_offline(fit: Fit, learn: Learn, real: Any) -> None:
    callback = WandbLoggerCallback("bears", upload_checkpoints=True)
    results = fit(learn, {"lr": tune.grid_search([1.0, 2.0])}, run={"callbacks": [callback]})
    real.teardown()  # writes the files
    for result in results:
        found = records(Path(result.path))
        (run,) = [each.run for each in found if each.HasField("run")]
        assert (run.run_id, run.project, run.run_group) == (result.metrics["trial_id"], "bears", "experiment")
        history = [
            {item.key or "/".join(item.nested_key): item.value_json for item in each.history.item}
            for each in found
            if each.HasField("history")
        ]
        assert [float(row["loss"]) for row in history] == [result.config["lr"] / step for step in (1, 2, 3)]
        assert [row["_step"] for row in history] == ["1", "2", "3"]
        assert len([each for each in found if each.HasField("artifact")]) == 3
        assert [each.exit.exit_code for each in found if each.HasField("exit")] == [0]
