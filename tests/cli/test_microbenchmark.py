"""`skate microbenchmark`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from skate.cli import measurements, microbenchmark
from tests.plugins.command_line import Cli

SHORT = ("--seconds", "0.001", "--num-cpus", "1")

# Another package that has Ray's functions: what runs in the child process is the same.
RAY = "from skate import get, init, put, remote, shutdown, wait\n"


def test_every_row_has_a_rate_and_its_spread(cli: Cli) -> None:
    done = cli.process("microbenchmark", *SHORT, "--format", "json")
    found = json.loads(done.out)
    assert [row["name"] for row in found] == [row.name for row in measurements.ROWS]
    for row in found:
        assert row["rate"] > 0
        assert len(row["samples"]) == measurements.SAMPLES
        assert min(row["samples"]) <= row["rate"] <= max(row["samples"])
        assert row["spread"] == (max(row["samples"]) - min(row["samples"])) / 2


def test_ray_stands_beside_it_with_the_ratio(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text(RAY)
    command = ("microbenchmark", *SHORT, "--only", "put_small", "--ray")
    lines = cli.process(*command, PYTHONPATH=_path(tmp_path)).out.splitlines()
    assert lines[0].split() == ["ROW", "UNIT", "RATE/S", "SPREAD", "RAY/S", "SPREAD", "RATIO"]
    assert len(lines) == 2
    (row,) = json.loads(cli.process(*command, "--format", "json", PYTHONPATH=_path(tmp_path)).out)
    assert row["ratio"] == row["rate"] / row["ray"]["rate"]


def test_an_error_of_ray_is_shown(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise OSError('no raylet')\n")
    command = ("microbenchmark", *SHORT, "--only", "put_small", "--ray")
    done = cli.process(*command, status=1, PYTHONPATH=_path(tmp_path))
    assert done.err.splitlines()[-1] == "Error: Ray could not be measured (exit status 1): OSError: no raylet"


def test_without_ray_it_says_so_before_it_measures(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(microbenchmark, "find_spec", lambda name: None)
    assert cli("microbenchmark", "--ray", status=1).err == "Error: --ray needs Ray: pip install ray\n"


def test_without_numpy_the_large_rows_are_left_out(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements, "find_spec", lambda name: None)
    names = {row.name for row in measurements.available_rows()}
    assert names == {row.name for row in measurements.ROWS} - {"put_large", "get_large"}
    done = cli("microbenchmark", "--only", "put_large", status=1)
    assert done.err == "Error: put_large needs numpy: pip install numpy\n"


def test_a_sample_has_at_least_one_step() -> None:
    steps: Iterator[int] = iter(range(100))
    assert len(measurements.measure(lambda: next(steps), 2, 1e-9)) == measurements.SAMPLES
    assert next(steps) == measurements.SAMPLES + 1  # and one to warm up


def _path(folder: Path) -> str:
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
