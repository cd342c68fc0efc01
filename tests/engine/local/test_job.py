"""What workers inherit from their driver, above all import paths."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import skate
from skate._engine.local.client.job import job_info
from skate._engine.local.worker import surroundings

DRIVER = """
import sys, skate

@skate.remote
def path():
    return sys.path

skate.init(num_cpus=1)
print(skate.get(path.remote()).count({folder!r}))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package whose module tells whether workers import from the package's own folder."""
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "program.py").write_text(DRIVER.format(folder=str(folder)))
    return folder


def run(*arguments: str, cwd: Path) -> str:
    paths = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, *arguments]
    env = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_the_folder_of_a_script_is_on_the_path_of_its_workers(package: Path) -> None:
    assert run(str(package / "program.py"), cwd=package.parent) == "1"


def test_the_folder_of_a_module_is_not(package: Path) -> None:
    assert run("-m", "package.program", cwd=package.parent) == "0"


def path_of_worker(monkeypatch: pytest.MonkeyPatch, environment: dict[str, Any]) -> list[str]:
    """Return the import path of a worker whose interpreter has packages of its own."""
    monkeypatch.setattr(sys, "path", ["", "/other/site-packages"])
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(surroundings, "_adopted", None)
    job = {
        "sys_path": ["/project", "/lib", "/mine/site-packages"],
        "own_path": ["/lib", "/mine/site-packages"],
    }
    request = {"info": job, "environment": environment, "session": ""}
    surroundings.adopt(request)
    return sys.path


def test_a_worker_imports_as_its_driver_does(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = ["/project", "/lib", "/mine/site-packages", "/other/site-packages"]
    assert path_of_worker(monkeypatch, {}) == expected


def test_another_interpreter_imports_its_own_packages_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert path_of_worker(monkeypatch, {"python": ["/other/python"]}) == ["/project", "/other/site-packages"]


def test_the_path_of_the_interpreter_is_told_apart() -> None:
    info = job_info("", {}, {})
    assert os.path.dirname(os.__file__) in info["own_path"]
    assert str(Path(skate.__file__).parents[1]) not in info["own_path"]


def test_uv_looks_for_a_project_in_the_working_dir(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\nexport SEEN="$UV_PROJECT"\nexec {sys.executable} "$@"\n')
    uv.chmod(0o755)

    @skate.remote
    def seen() -> tuple[str | None, str]:
        return os.environ.get("SEEN"), os.getcwd()

    with skate.init(
        num_cpus=1, runtime_env={"working_dir": str(tmp_path / "files"), "py_executable": str(uv)}
    ):
        project, cwd = skate.get(seen.remote())
    assert project == cwd
