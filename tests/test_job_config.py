"""Settings of a job."""

from __future__ import annotations

import pickle

import pytest

from skate.job_config import JobConfig, LoggingConfig


def test_nothing_is_set_by_default() -> None:
    config = JobConfig()
    assert (config.runtime_env, config.metadata, config.code_search_path) == ({}, {}, [])
    assert config.ray_namespace is None
    assert config.default_actor_lifetime == "non_detached"
    assert config.py_logging_config is None


def test_setters_change_what_was_given() -> None:
    config = JobConfig(metadata={"a": "1"}, runtime_env={"env_vars": {"A": "1"}})
    config.set_metadata("b", "2")
    config.set_ray_namespace("tests")
    config.set_default_actor_lifetime("detached")
    config.set_runtime_env(None)
    assert config.metadata == {"a": "1", "b": "2"}
    assert (config.ray_namespace, config.default_actor_lifetime) == ("tests", "detached")
    assert config.runtime_env == {}


def test_the_metadata_of_two_jobs_are_two() -> None:
    shared = {"a": "1"}
    JobConfig(metadata=shared).set_metadata("b", "2")
    assert shared == {"a": "1"}


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="is 'detached' or 'non_detached', not 'long'"):
        JobConfig(default_actor_lifetime="long")
    with pytest.raises(TypeError, match="The type of code search path is incorrect"):
        JobConfig(code_search_path="/code")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="The type of code search path is incorrect"):
        JobConfig.from_json({"code_search_path": "/code"})


def test_an_environment_can_be_checked_when_it_is_set() -> None:
    with pytest.raises((TypeError, ValueError)):
        JobConfig().set_runtime_env({"env_vars": 3}, validate=True)


def test_settings_can_be_read_from_a_dictionary() -> None:
    config = JobConfig.from_json(
        {"runtime_env": {"env_vars": {"A": "1"}}, "metadata": {"a": "b"}, "other": 1}
    )
    assert config.runtime_env == {"env_vars": {"A": "1"}}
    assert config.metadata == {"a": "b"}


def test_how_a_job_logs_is_set_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_LOGGING_CONFIG_ENCODING", "JSON")
    config = JobConfig()
    config.ensure_logging_config()
    assert config.py_logging_config == LoggingConfig("JSON")
    config.ensure_logging_config({"encoding": "TEXT"})
    assert config.py_logging_config == LoggingConfig("JSON")
    config.set_py_logging_config(None)
    config.ensure_logging_config({"encoding": "TEXT"})
    assert config.py_logging_config == LoggingConfig("TEXT")


def test_settings_survive_pickling() -> None:
    config = pickle.loads(pickle.dumps(JobConfig(ray_namespace="tests", _client_job=True)))
    assert config.ray_namespace == "tests"
    assert config._client_job
