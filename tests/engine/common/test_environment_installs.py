"""Packages are installed once per set of requirements, over those of the base environment."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.engine.common.environment_files import PACKAGE_ROOT, make_wheel, run_in, write

from skate._engine.common.environments import (
    prepare,
)
from skate._engine.common.environments.virtualenvs import describe_requirements
from skate.exceptions import RuntimeEnvSetupError


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index")
    make_wheel(folder, "tiny_package", "1.0", body="value = 1\ndef main(): print('tool ran')\n")
    make_wheel(folder, "tiny_package", "2.0", body="value = 2")
    make_wheel(folder, "broken_package", "1.0", requires="not_to_be_found")
    return folder


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def offline(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    # The environment has to find Skate by itself.
    monkeypatch.delenv("PYTHONPATH", raising=False)


def pip(*packages: str, **settings: Any) -> dict[str, Any]:
    return {"pip": {"packages": list(packages), "pip_check": False, **settings}}


def test_packages_are_installed_over_the_base_environment(shared_cache: Path) -> None:
    prepared = prepare(pip("tiny_package==1.0"), shared_cache)
    code = """
    import subprocess, sys
    import cloudpickle, skate.exceptions, tiny_package
    print(tiny_package.value)
    print(subprocess.run([sys.executable, "-c", "import tiny_package"]).returncode, flush=True)
    subprocess.run(["tiny_package-tool"])
    """
    assert run_in(prepared, code).split("\n") == ["1", "0", "tool ran"]
    assert prepared.env_vars["VIRTUAL_ENV"] == str(Path(prepared.python[0]).parents[1])  # type: ignore[index]
    assert prepared.needs_new_process


def test_an_installed_environment_is_kept_and_told_apart_by_its_contents(shared_cache: Path) -> None:
    one = prepare(pip("tiny_package==1.0"), shared_cache)
    assert prepare(pip("tiny_package==1.0"), shared_cache) == one
    two = prepare(pip("tiny_package==2.0"), shared_cache)
    assert two.python != one.python
    assert run_in(two, "import tiny_package; print(tiny_package.value)") == "2"


def test_a_failed_installation_shows_what_pip_said_and_leaves_nothing(cache_dir: Path) -> None:
    with pytest.raises(RuntimeEnvSetupError, match="no-such-package") as info:
        prepare(pip("no-such-package-anywhere"), cache_dir)
    assert "No matching distribution found" in str(info.value)
    assert "pip install failed with exit code 1" in str(info.value)
    assert list((cache_dir / "virtualenvs").iterdir()) == []


def test_pip_check_finds_missing_requirements(cache_dir: Path) -> None:
    options = {"pip_install_options": ["--no-deps"], "pip_check": True}
    with pytest.raises(RuntimeEnvSetupError, match=r"broken.package 1\.0 requires not.to.be.found"):
        prepare(pip("broken_package", **options), cache_dir)


def test_requirements_may_lie_in_the_working_dir(tmp_path: Path, cache_dir: Path) -> None:
    write(tmp_path / "job" / "requirements.txt", "-r more.txt")
    write(tmp_path / "job" / "more.txt", "tiny_package==2.0")
    env = {
        "working_dir": str(tmp_path / "job"),
        **pip("-r ${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}/requirements.txt"),
    }
    prepared = prepare(env, cache_dir)
    assert run_in(prepared, "import tiny_package; print(tiny_package.value)") == "2"


def test_an_installation_that_takes_too_long_is_stopped(cache_dir: Path, tmp_path: Path) -> None:
    uv = write(tmp_path / "bin" / "uv", "#!/bin/sh\nsleep 600\n")
    uv.chmod(0o755)
    env = {
        "uv": {"packages": ["x"], "uv_check": False},
        "env_vars": {"PATH": f"{uv.parent}:${{PATH}}"},
        "config": {"setup_timeout_seconds": 2},
    }
    with pytest.raises(RuntimeEnvSetupError, match=r"took longer than 2 s.*setup_timeout_seconds"):
        prepare(env, cache_dir)
    assert list((cache_dir / "virtualenvs").iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
def test_an_installer_does_not_outlive_whoever_started_it(cache_dir: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # The installer holds the pipe open for as long as it lives.
    uv = write(tmp_path / "bin" / "uv", f"#!/bin/sh\nexec sleep 600 > {pipe}\n")
    uv.chmod(0o755)
    code = f"""
    from pathlib import Path
    from skate._engine.common.environments import prepare
    prepare({{"uv": {{"packages": ["x"]}}}}, Path({str(cache_dir)!r}))
    """
    builder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PATH": f"{uv.parent}:{os.environ['PATH']}", "PYTHONPATH": PACKAGE_ROOT},
    )
    with builder, pipe.open("rb") as reader:  # Opening waits until the installer is there.
        builder.kill()
        assert reader.read() == b""  # And reading until it is gone.


def test_uv_installs_into_the_same_kind_of_environment(cache_dir: Path, tmp_path: Path) -> None:
    # Stands in for uv: it records its arguments and lets pip do the work.
    record = tmp_path / "record"
    script = f"""#!/bin/sh
    echo "$@" >> {record}
    [ "$2" = check ] || exec "$4" -m pip install --no-warn-conflicts -r "$7"
    """
    uv = write(tmp_path / "bin" / "uv", textwrap.dedent(script))
    uv.chmod(0o755)
    env = {
        "uv": {"packages": ["tiny_package==1.0"], "uv_check": True, "uv_pip_install_options": ["--no-cache"]},
        "env_vars": {"PATH": f"{uv.parent}:${{PATH}}"},
    }
    prepared = prepare(env, cache_dir)
    assert run_in(prepared, "import tiny_package; print(tiny_package.value)") == "1"
    install, check = record.read_text().splitlines()
    assert install.startswith("pip install --python")
    assert "--no-cache -r" in install
    assert check.startswith("pip check --python")


def test_requirements_are_told_apart_by_the_files_they_name(tmp_path: Path) -> None:
    def describe(*lines: str) -> list[str]:
        return describe_requirements(lines, tmp_path, {"HERE": str(tmp_path)})

    write(tmp_path / "a.txt", "-r b.txt\none\n")
    write(tmp_path / "b.txt", "-r a.txt\n# comment\ntwo\n")
    assert [line for line in describe("-r a.txt") if not line.startswith("-r")] == ["two", "one"]
    before = describe("--requirement=${HERE}/a.txt", "./wheel-1.0.whl", "name @ file:///x.whl")
    write(tmp_path / "b.txt", "three\n")
    assert describe("--requirement=${HERE}/a.txt") != before[:3]
    write(tmp_path / "wheel-1.0.whl", "x")
    one = describe("./wheel-1.0.whl")
    write(tmp_path / "wheel-1.0.whl", "y")
    assert describe("./wheel-1.0.whl") != one
    assert describe("plain==1.0", "https://host/x.whl") == ["plain==1.0", "https://host/x.whl"]
    assert "missing" in describe("-r none.txt")[1]


def fake_conda(tmp_path: Path) -> dict[str, str]:
    """Write a program that answers like conda, with one environment that is this interpreter's."""
    prefix = tmp_path / "envs" / "present"
    (prefix / "bin").mkdir(parents=True)
    python = write(prefix / "bin" / "python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    script = f"""#!/bin/sh
    case "$1" in
      info) echo '{{"root_prefix": "{tmp_path}", "envs": ["{tmp_path}", "{prefix}"]}}' ;;
      env) {sys.executable} -m venv --without-pip "$4" && cp "$6" {tmp_path}/spec.json ;;
    esac
    """
    conda = write(tmp_path / "bin" / "conda", textwrap.dedent(script))
    conda.chmod(0o755)
    return {"CONDA_EXE": str(conda), "PYTHONPATH": PACKAGE_ROOT}


def test_an_existing_conda_environment_is_found_by_name(tmp_path: Path, cache_dir: Path) -> None:
    base = {**os.environ, **fake_conda(tmp_path)}
    prepared = prepare({"conda": "present"}, cache_dir, base_env=base)
    assert prepared.python == (str(tmp_path / "envs" / "present" / "bin" / "python"),)
    assert prepared.env_vars["CONDA_PREFIX"] == str(tmp_path / "envs" / "present")
    with pytest.raises(
        RuntimeEnvSetupError, match="'absent' doesn't exist from the output of `conda info --json`"
    ):
        prepare({"conda": "absent"}, cache_dir, base_env=base)


def test_a_conda_environment_is_made_from_its_contents(tmp_path: Path, cache_dir: Path) -> None:
    base = {**os.environ, **fake_conda(tmp_path)}
    prepared = prepare({"conda": {"dependencies": ["toolz"]}}, cache_dir, base_env=base)
    assert run_in(prepared, "import cloudpickle, skate.exceptions; print('ok')") == "ok"
    assert f"python={sys.version_info.major}.{sys.version_info.minor}" in (tmp_path / "spec.json").read_text()


def test_without_conda_the_error_says_so(cache_dir: Path) -> None:
    with pytest.raises(RuntimeEnvSetupError, match="needs conda"):
        prepare({"conda": "x"}, cache_dir, base_env={"PATH": ""})


def test_a_python_command_is_split_into_words(cache_dir: Path) -> None:
    prepared = prepare({"py_executable": "env 'A=1 2' python"}, cache_dir)
    assert prepared.python == ("env", "A=1 2", "python")
