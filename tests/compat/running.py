"""Runs a third-party package's job on Skate, as its user would: with `skate run`."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

JOBS = Path(__file__).parent / "jobs"
PROGRAM_TIMEOUT_S = 110  # seconds: a job takes a few, most of them for imports
SEARCH_TIMEOUT_S = 280  # where many workers train


@dataclass(frozen=True)
class Report:
    """What a job said: what the workers computed, what it should be, and which processes computed it."""

    result: Any
    expected: Any
    pids: list[int]
    driver: int
    api: str


def skip_without(*packages: str) -> None:
    """Skip the tests of a module where a package is not installed; import nothing, since packages import Ray."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed", allow_module_level=True)


def run_on_skate(name: str, folder: Path, timeout_s: float = PROGRAM_TIMEOUT_S, preload: str = "") -> Report:
    """Run a job in a folder, and return its report; fail if it did not run in Skate's workers.

    Args:
        name: The job.
        folder: Where it runs.
        timeout_s: Seconds after which it is taken to hang.
        preload: Modules that are imported once for all workers, with commas between them.
    """
    job = JOBS / f"{name}_job.py"
    done = subprocess.run(
        [sys.executable, "-m", "skate.cli", "run", str(job)],
        cwd=folder,
        env={**os.environ, "SKATE_PRELOAD": preload},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    printed = f"{job.name} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, printed
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"result"')]
    assert len(lines) == 1, printed
    report = Report(**json.loads(lines[0]))
    assert report.api.startswith("skate."), f"`import ray` was not Skate, but {report.api}"
    assert report.pids, printed
    assert report.driver not in report.pids, f"the driver {report.driver} did some of the work: {report.pids}"
    return report
