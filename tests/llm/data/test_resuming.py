"""Jobs that were killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.data.interruptions import ROOT, rows_in, visible
from tests.llm.data import killed_job


def run(model: Path, out: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.llm.data.killed_job", str(model), str(out)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}", **environment},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_a_killed_job_resumes_with_the_rows_that_are_left(
    models: Path, direct: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    out = tmp_path / "answers"
    done = run(models / "model", out, DIE_WHEN_WRITTEN=str(out))
    assert done.returncode == -signal.SIGKILL, done.stderr
    before = {name: (out / name).stat().st_mtime_ns for name in visible(out)}
    assert 0 < len(rows_in(out)) < killed_job.ROWS
    done = run(models / "model", out)
    assert done.returncode == 0, done.stderr
    assert {name: (out / name).stat().st_mtime_ns for name in before} == before
    expected = direct([killed_job.prompt_of(i) for i in range(killed_job.ROWS)], **killed_job.SAMPLING)
    assert rows_in(out) == [
        {"id": number, "answer": want["generated_text"]} for number, want in enumerate(expected)
    ]
