"""Variables that programs written for Ray set, and what they change; docs/guide/environment-variables.md lists them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import skate
from skate._api import submission
from skate._base.memory import total
from skate._engine.common import machine_facts, session_roots
from skate._engine.local.driver.launcher import monitor_settings

ROOT = Path(__file__).parents[1]
READ = re.compile(r"variables\.(?:flag|number|integer|text|find|pattern)\(\s*\"(\w+)\"", re.DOTALL)


@pytest.fixture
def session() -> Iterator[None]:
    yield
    skate.shutdown()


def hook(runtime_env: dict[str, Any] | None) -> dict[str, Any]:
    """Add a variable, as RAY_RUNTIME_ENV_HOOK may."""
    given = runtime_env or {}
    return {**given, "env_vars": {**given.get("env_vars", {}), "HOOKED": "1"}}


def test_the_guide_lists_every_variable_that_is_read() -> None:
    page = (ROOT / "docs/guide/environment-variables.md").read_text()
    read = {name for path in (ROOT / "src").rglob("*.py") for name in READ.findall(path.read_text())}
    assert {"ADDRESS", "DEDUP_LOGS_AGG_WINDOW_S"} <= read
    assert [name for name in sorted(read) if f"RAY_{name}`" not in page] == []


def test_ray_tmpdir_names_the_folder_of_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SKATE_TMPDIR")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert Path(session_roots.root()).parent == tmp_path
    (tmp_path / "file").touch()
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "file"))
    with pytest.raises(session_roots.UnusableFolderError, match="Set RAY_TMPDIR to a folder"):
        session_roots.root()


def test_the_share_of_memory_for_objects_has_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_facts, "free_space", lambda _: float("inf"))
    monkeypatch.setenv("RAY_DEFAULT_OBJECT_STORE_MEMORY_PROPORTION", "0.5")
    assert machine_facts.store_budget(str(tmp_path), None).size == int(total() * 0.5)
    monkeypatch.setenv("RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES", "1000000")
    assert machine_facts.store_budget(str(tmp_path), None).size == 1_000_000
    monkeypatch.setenv("RAY_DEFAULT_OBJECT_STORE_MEMORY_PROPORTION", "2")
    with pytest.raises(ValueError, match="RAY_DEFAULT_OBJECT_STORE_MEMORY_PROPORTION must be at least"):
        machine_facts.store_budget(str(tmp_path), None)


def test_settings_of_the_memory_monitor_have_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.5")
    assert monitor_settings(None)["memory_usage_threshold"] == 0.5
    assert monitor_settings({"memory_usage_threshold": 0.8})["memory_usage_threshold"] == 0.8
    monkeypatch.setenv("SKATE_memory_monitor_refresh_ms", "often")
    with pytest.raises(ValueError, match="SKATE_memory_monitor_refresh_ms must be a number"):
        monitor_settings(None)


@pytest.mark.usefixtures("session")
def test_a_client_without_a_namespace_gets_that_of_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_NAMESPACE", "theirs")
    monkeypatch.setenv("SKATE_ENGINE", "inline")
    with pytest.warns(DeprecationWarning, match="init"):
        skate.client("local").connect()
    assert skate.get_runtime_context().namespace == "theirs"


@pytest.mark.usefixtures("session")
def test_a_job_config_and_a_hook_add_to_the_environment_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"runtime_env": {"env_vars": {"OUTER": "1"}}, "metadata": {"name": "nightly"}}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps(config))
    monkeypatch.setenv("RAY_RUNTIME_ENV_HOOK", f"{__name__}.hook")
    skate.init(engine="inline", runtime_env={"env_vars": {"INNER": "1"}})
    found = skate.get_runtime_context().runtime_env["env_vars"]
    assert found == {"OUTER": "1", "INNER": "1", "HOOKED": "1"}


@pytest.mark.usefixtures("session")
def test_a_driver_can_skip_the_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_RUNTIME_ENV_HOOK", f"{__name__}.hook")
    skate.init(engine="inline", _skip_env_hook=True)
    assert "env_vars" not in skate.get_runtime_context().runtime_env


def test_a_field_that_job_config_and_driver_both_set_is_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"runtime_env": {"env_vars": {"SAME": "outer"}}, "metadata": {"name": "nightly"}}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps(config))
    with pytest.raises(ValueError, match=r"RAY_JOB_CONFIG_JSON_ENV_VAR and .* both set SAME"):
        submission.add_job_config({"env_vars": {"SAME": "inner"}}, {})
    monkeypatch.setenv("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
    env, metadata = submission.add_job_config({"env_vars": {"SAME": "inner"}}, {"name": "mine", "more": "x"})
    assert env is not None
    assert env["env_vars"] == {"SAME": "inner"}
    assert metadata == {"name": "nightly", "more": "x"}


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_a_job_config_that_is_none_is_an_error_with_the_name(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", text)
    with pytest.raises(ValueError, match="RAY_JOB_CONFIG_JSON_ENV_VAR must hold a job config"):
        submission.add_job_config(None, {})


@pytest.mark.parametrize("path", ["hook", "no_such_module.hook", "json.no_such_function"])
def test_a_hook_that_does_not_exist_is_an_error_with_the_name(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_RUNTIME_ENV_HOOK", path)
    with pytest.raises(ValueError, match=f"RAY_RUNTIME_ENV_HOOK is '{path}'"):
        submission.apply_hook(None)


def test_a_wrong_variable_ends_init_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_DEDUP_LOGS_SKIP_REGEX", "(")
    with pytest.raises(ValueError, match="RAY_DEDUP_LOGS_SKIP_REGEX is"):
        skate.init(num_cpus=1)
    assert not skate.is_initialized()


def test_datasets_take_their_defaults_from_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    from skate.data import DataContext

    assert DataContext().enable_progress_bars
    monkeypatch.setenv("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.setenv("RAY_DATA_DEFAULT_MIN_PARALLELISM", "7")
    context = DataContext()
    assert not context.enable_progress_bars
    assert context.min_parallelism == 7


def test_serve_takes_its_defaults_from_variables() -> None:
    program = "from skate.serve._config import defaults as d; print(d.HTTP_HOST, d.KEEP_ALIVE_TIMEOUT_S)"
    names = {"RAY_SERVE_DEFAULT_HTTP_HOST": "0.0.0.0", "RAY_SERVE_HTTP_KEEP_ALIVE_TIMEOUT_S": "5"}
    env = {**os.environ, **names}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["0.0.0.0", "5"]


def test_plain_functions_of_deployments_run_in_threads_unless_a_variable_says_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from skate.serve._replica.user_code import _runs_sync_in_threads

    assert _runs_sync_in_threads()
    monkeypatch.setenv("RAY_SERVE_RUN_SYNC_IN_THREADPOOL", "0")
    assert not _runs_sync_in_threads()


def test_no_session_starts_by_itself_if_the_variable_forbids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ENABLE_AUTO_CONNECT", "0")

    @skate.remote
    def f() -> None: ...

    calls: list[Callable[[], Any]] = [
        f.remote,
        skate.nodes,
        skate.get_gpu_ids,
        lambda: skate.put(1),
        lambda: skate.get([]),
        lambda: skate.wait([]),
        lambda: skate.get_actor("name"),
        lambda: skate.cancel(None),  # type: ignore[arg-type]
        lambda: skate.kill(None),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(skate.exceptions.RaySystemError, match="Ray has not been started yet"):
            call()
    assert not skate.is_initialized()


@pytest.mark.usefixtures("session")
def test_temp_dir_of_init_holds_the_files_of_the_session(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="_temp_dir must be an absolute path"):
        skate.init(_temp_dir="here")
    folder = tmp_path / "new" / "folder"
    context = skate.init(num_cpus=1, engine="local", _temp_dir=str(folder))
    assert Path(context["session_dir"]).parent.parent == folder
    program = f"import skate; skate.init({context['session_dir']!r}); print(skate.cluster_resources()['CPU'])"
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(child.stdout) == 1
    skate.shutdown()
    assert [files for _, _, files in os.walk(folder) if files] == []
