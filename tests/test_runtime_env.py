"""Runtime environments are validated where they are written, and inherited field by field."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest

from skate._base.runtime_envs.fields import KNOWN
from skate._base.runtime_envs.inheritance import as_runtime_env, for_task, merge
from skate.runtime_env import RuntimeEnv, RuntimeEnvConfig


def test_no_fields_make_an_empty_dict() -> None:
    assert RuntimeEnv() == {}
    assert RuntimeEnv(pip=None, env_vars={}, excludes=[]) == {}


def test_fields_are_read_like_those_of_a_dict() -> None:
    env = RuntimeEnv(env_vars={"A": "1"})
    assert isinstance(env, dict)
    assert env == {"env_vars": {"A": "1"}}
    assert env.get("env_vars") == {"A": "1"}
    assert env.get("pip") is None
    assert env.get("pip", default=3) == 3
    assert env.has("env_vars")
    assert not env.has("pip")


# -- unknown fields --------------------


@pytest.mark.parametrize(
    ("wrong", "right"), [("env_var", "env_vars"), ("workdir", "working_dir"), ("pips", "pip")]
)
def test_an_unknown_field_names_the_closest_known_one(wrong: str, right: str) -> None:
    with pytest.raises(ValueError, match=f"no field '{wrong}'. Did you mean '{right}'"):
        RuntimeEnv(**{wrong: "x"})


def test_an_unknown_field_like_no_other_is_kept_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        assert RuntimeEnv(LOG_EVERY_TASK="1").plugins() == [("LOG_EVERY_TASK", "1")]
    (warning,) = caplog.messages
    assert warning.startswith("runtime_env has no field 'LOG_EVERY_TASK', and Skate ignores it")
    assert warning.endswith(
        "Known fields: " + ", ".join(name for name in sorted(KNOWN) if name[0] != "_") + "."
    )


def test_a_field_of_ones_own_can_be_set_by_name() -> None:
    env = RuntimeEnv()
    env.set("plugin", {"level": 3})
    assert env["plugin"] == {"level": 3}
    assert env.plugins() == [("plugin", {"level": 3})]


# -- single fields --------------------


@pytest.mark.parametrize("value", [{"A": 1}, {1: "A"}, "A=1", ["A"], 3])
def test_environment_variables_are_strings(value: Any) -> None:
    with pytest.raises(TypeError, match=r"Dict\[str, str\]"):
        RuntimeEnv(env_vars=value)


@pytest.mark.parametrize("value", [{"": "x"}, {"A=B": "x"}, {"A": "x\0y"}])
def test_environment_variables_that_cannot_exist_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="is not valid in an environment"):
        RuntimeEnv(env_vars=value)


def test_a_working_dir_is_a_directory_an_archive_or_a_uri(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    archive.write_bytes(b"")
    for good in (str(tmp_path), str(archive), "s3://bucket/a.zip", "https://host/a.tar.gz", "file:///a.zip"):
        assert RuntimeEnv(working_dir=good)["working_dir"] == good
    assert RuntimeEnv(working_dir=tmp_path)["working_dir"] == str(tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("/does/not/exist", "a valid path"),
        ("", "a valid path"),
        ("unknown://abc.zip", "a valid URI"),
        ("https://host/file", "Only .zip"),
        ("s3://bucket/file", "Only .zip"),
    ],
)
def test_other_working_dirs_are_refused(value: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RuntimeEnv(working_dir=value)


def test_a_working_dir_that_is_a_plain_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "script.sh"
    file.write_text("")
    with pytest.raises(ValueError, match="give a directory or a"):
        RuntimeEnv(working_dir=str(file))


def test_values_of_the_wrong_type_are_refused() -> None:
    for field, value in {
        "working_dir": 10,
        "py_modules": ".",
        "excludes": "string",
        "pip": 1,
        "uv": True,
        "conda": 1,
        "py_executable": ["python"],
        "worker_process_setup_hook": 3,
        "container": "image",
        "config": 3,
    }.items():
        with pytest.raises(TypeError, match=field):
            RuntimeEnv(**{field: value})
    with pytest.raises(TypeError, match="py_modules"):
        RuntimeEnv(py_modules=[10])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="excludes"):
        RuntimeEnv(excludes=["a", 1])


def test_modules_are_packages_files_wheels_archives_or_uris(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("")
    (tmp_path / "p-1.0-py3-none-any.whl").write_bytes(b"")
    good = [
        str(tmp_path),
        str(tmp_path / "module.py"),
        str(tmp_path / "p-1.0-py3-none-any.whl"),
        "gs://b/x.whl",
    ]
    assert RuntimeEnv(py_modules=good)["py_modules"] == good
    assert RuntimeEnv(py_modules=good).py_modules_uris() == ["gs://b/x.whl"]
    with pytest.raises(ValueError, match="a valid path"):
        RuntimeEnv(py_modules=["/does/not/exist"])
    with pytest.raises(ValueError, match="files are supported"):
        RuntimeEnv(py_modules=["s3://bucket/file"])


def test_an_imported_package_stands_for_its_folder() -> None:
    import json

    assert RuntimeEnv(py_modules=[json])["py_modules"] == [str(Path(json.__file__).parent)]  # type: ignore[list-item]


def test_pip_takes_a_list_a_file_or_settings(tmp_path: Path) -> None:
    assert RuntimeEnv(pip=["a", "b", "a"])["pip"] == {"packages": ["a", "b"], "pip_check": False}
    file = tmp_path / "requirements.txt"
    file.write_text("# comment\n\n   a==1  \n--extra-index-url https://x\n")
    assert RuntimeEnv(pip=str(file))["pip"]["packages"] == ["a==1", "--extra-index-url https://x"]
    settings = {"packages": ["a"], "pip_check": True, "pip_version": "==23", "pip_install_options": ["--pre"]}
    assert RuntimeEnv(pip=settings)["pip"] == settings
    assert RuntimeEnv(pip=[]) == {}
    assert RuntimeEnv(uv=["a"])["uv"] == {"packages": ["a"], "uv_check": False}
    assert RuntimeEnv(uv={"packages": ["a"], "uv_version": "==0.5"})["uv"]["uv_version"] == "==0.5"


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ("missing.txt", ValueError, "not a valid file"),
        ({"pip_check": True}, ValueError, "must include field 'packages'"),
        ({"packages": ["a"], "pip_chek": True}, ValueError, "Did you mean 'pip_check'"),
        ({"packages": ["a"], "pip_check": "1"}, TypeError, "pip_check"),
        ({"packages": ["a"], "pip_version": 1}, TypeError, "pip_version"),
        ({"packages": ["a"], "pip_install_options": [False]}, TypeError, r"must be of type list\[str\]"),
        ({"packages": ["a"], "pip_install_options": None}, TypeError, r"must be of type list\[str\]"),
        ({"packages": [1]}, TypeError, "packages"),
    ],
)
def test_settings_of_pip_are_checked(value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        RuntimeEnv(pip=value)


def test_only_one_installer_can_be_used() -> None:
    for pair in ({"pip": ["a"], "uv": ["a"]}, {"pip": ["a"], "conda": "x"}, {"uv": ["a"], "conda": "x"}):
        with pytest.raises(ValueError, match="only one of pip, uv and conda can install its packages"):
            RuntimeEnv(**pair)


def test_conda_is_a_name_or_contents() -> None:
    assert RuntimeEnv(conda="my_env").conda_env_name() == "my_env"
    assert RuntimeEnv(conda={"dependencies": ["x"]}).conda_config() == '{"dependencies": ["x"]}'
    with pytest.raises(ValueError, match="Can't find conda YAML file"):
        RuntimeEnv(conda="../missing.yaml")


def test_fields_for_a_cluster_are_accepted() -> None:
    assert RuntimeEnv(nsight="default").nsight() == "default"
    assert RuntimeEnv(image_uri="image", env_vars={"A": "1"}).image_uri() == "image"
    assert RuntimeEnv(container={"image": "x"}).has_py_container()
    with pytest.raises(ValueError, match="Build pip into the image"):
        RuntimeEnv(container={"image": "x"}, pip=["a"])


def test_a_field_that_is_set_later_is_checked_too() -> None:
    env = RuntimeEnv()
    env["pip"] = ["a"]
    assert env["pip"] == {"packages": ["a"], "pip_check": False}
    with pytest.raises(TypeError, match="env_vars"):
        env.set("env_vars", {"a": 1})
    env["pip"] = []
    assert env == {}


# -- settings of the setup --------------------


def test_config_has_defaults() -> None:
    assert RuntimeEnvConfig() == {"setup_timeout_seconds": 600, "eager_install": True, "log_files": []}
    assert RuntimeEnvConfig.default_config() == RuntimeEnvConfig()
    assert RuntimeEnv(config={"setup_timeout_seconds": -1})["config"]["setup_timeout_seconds"] == -1
    assert RuntimeEnv(config=RuntimeEnvConfig(eager_install=False))["config"]["eager_install"] is False


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"setup_timeout_seconds": 10.0}, TypeError),
        ({"setup_timeout_seconds": "10"}, TypeError),
        ({"setup_timeout_seconds": 0}, ValueError),
        ({"setup_timeout_seconds": -2}, ValueError),
        ({"eager_install": 123}, TypeError),
        ({"log_files": "x"}, TypeError),
    ],
)
def test_config_is_checked(fields: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        RuntimeEnvConfig(**fields)
    with pytest.raises(error):
        RuntimeEnv(config=fields)


def test_an_unknown_setting_names_the_closest_known_one() -> None:
    with pytest.raises(ValueError, match="Did you mean 'setup_timeout_seconds'"):
        RuntimeEnv(config={"setup_timeout": 3})


# -- writing and reading --------------------


def test_equal_environments_are_written_alike() -> None:
    one = RuntimeEnv(pip=["a"], env_vars={"x": "1", "y": "2"}, config={"setup_timeout_seconds": 5})
    two = RuntimeEnv(config={"setup_timeout_seconds": 5}, env_vars={"y": "2", "x": "1"}, pip=["a"])
    assert one.serialize() == two.serialize()
    assert RuntimeEnv.deserialize(one.serialize()) == one == two
    assert isinstance(RuntimeEnv.deserialize(one.serialize())["config"], RuntimeEnvConfig)


def test_a_copy_as_plain_dicts_shares_nothing() -> None:
    env = RuntimeEnv(env_vars={"A": "1"}, config={"setup_timeout_seconds": 5})
    plain = env.to_dict()
    plain["env_vars"]["A"] = "2"
    assert env["env_vars"] == {"A": "1"}
    assert type(plain["config"]) is dict


def test_a_function_cannot_be_written_as_text() -> None:
    with pytest.raises(TypeError, match="because of worker_process_setup_hook"):
        RuntimeEnv(worker_process_setup_hook=lambda: None).serialize()


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_an_environment_survives_where_its_paths_do_not_exist(clone: Any, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    env = RuntimeEnv(working_dir=str(folder), config={"setup_timeout_seconds": 5})
    folder.rmdir()
    twin = clone(env)
    assert twin == env
    assert type(twin) is RuntimeEnv
    assert type(twin["config"]) is RuntimeEnvConfig


@dataclasses.dataclass
class Inner:
    names: list[str]


@dataclasses.dataclass
class Outer:
    inners: list[Inner]
    by_name: dict[str, Inner]
    maybe: Inner | None = None
    level: int = 1


def test_dataclasses_go_in_and_come_out() -> None:
    env = RuntimeEnv()
    outer = Outer(inners=[Inner(["a"]), Inner(["b"])], by_name={"x": Inner(["c"])}, maybe=Inner([]))
    env.set("plugin", outer)
    assert env["plugin"]["inners"][0] == {"names": ["a"]}
    assert RuntimeEnv.deserialize(env.serialize()).get("plugin", data_class=Outer) == outer
    env["plugin"] = "text"
    with pytest.raises(TypeError, match="cannot make a Outer of a str"):
        env.get("plugin", data_class=Outer)


# -- inheritance --------------------


def test_variables_are_merged_and_other_fields_replaced() -> None:
    parent = RuntimeEnv(env_vars={"A": "1", "B": "1"}, pip=["a"], py_executable="python")
    child = {"env_vars": {"B": "2", "C": "2"}, "py_executable": "pypy"}
    merged = merge(parent, child)
    assert merged["env_vars"] == {"A": "1", "B": "2", "C": "2"}
    assert merged["py_executable"] == "pypy"
    assert merged["pip"]["packages"] == ["a"]
    assert parent["env_vars"] == {"A": "1", "B": "1"}


def test_a_child_with_its_own_installer_does_not_get_the_parents() -> None:
    merged = merge(RuntimeEnv(pip=["a"]), RuntimeEnv(uv=["b"]))
    assert "pip" not in merged
    assert merged["uv"]["packages"] == ["b"]


@pytest.mark.parametrize("empty", [None, {}])
def test_merging_with_nothing_changes_nothing(empty: Any) -> None:
    env = RuntimeEnv(env_vars={"A": "1"})
    assert merge(env, empty) == merge(empty, env) == env
    assert merge(empty, empty) == {}


def test_a_dict_is_checked_like_an_environment() -> None:
    assert as_runtime_env({"env_vars": {"A": "1"}}) == RuntimeEnv(env_vars={"A": "1"})
    assert as_runtime_env(None) == {}
    with pytest.raises(ValueError, match=r"no field 'pips'. Did you mean 'pip'"):
        as_runtime_env({"pips": []})
    with pytest.raises(TypeError, match="must be a dict"):
        as_runtime_env("env")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="strings as keys"):
        as_runtime_env({1: 2})  # type: ignore[dict-item]


def test_a_task_cannot_name_local_files() -> None:
    for fields in ({"working_dir": "."}, {"py_modules": ["."]}):
        with pytest.raises(ValueError, match="is not a valid URI"):
            for_task(fields)
    env = {"working_dir": "s3://b/a.zip", "py_modules": ["file:///x.whl"], "env_vars": {"A": "1"}}
    assert for_task(env) == env
