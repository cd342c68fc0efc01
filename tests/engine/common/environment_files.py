"""Files, wheels and processes for the tests of runtime environments."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import skate.exceptions
from skate._engine.common.environments import (
    WorkerEnvironment,
)

# What PYTHONPATH needs for a process of a test to import the same Skate.
PACKAGE_ROOT = str(Path(skate.exceptions.__file__).parents[1])


def write(path: Path, text: str = "Test") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def names(folder: Path | str) -> list[str]:
    root = Path(folder)
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def make_wheel(folder: Path, name: str, version: str, *, body: str = "", requires: str = "") -> Path:
    """Write a wheel with one module by hand, so that no build tool and no network is needed."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    requirement = f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        f"{name}/__init__.py": body or f"__version__ = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requirement}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name}-tool = {name}:main\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


def run_in(environment: WorkerEnvironment, code: str) -> str:
    """Run code as a worker started from nothing would."""
    done = subprocess.run(
        [*(environment.python or (sys.executable,)), "-c", textwrap.dedent(code)],
        env={**os.environ, **environment.env_vars},
        cwd=environment.cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
