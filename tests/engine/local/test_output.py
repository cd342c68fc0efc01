"""Output of workers that is not read for a while, and its prefixes."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import skate

LINES = 20_000

FLOOD = f"""
import sys
import skate

skate.init(num_cpus=1)

@skate.remote
def flood():
    for number in range({LINES}):
        print(f"{{number:100}}")
    return "the result"

sys.stderr.write(skate.get(flood.remote()) + "\\n")
"""


def test_a_result_arrives_while_nobody_reads_the_output_and_later_all_of_it_is_shown(tmp_path: Path) -> None:
    program = tmp_path / "flood.py"
    program.write_text(FLOOD)
    with subprocess.Popen(
        [sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline() == "the result\n"  # the pipe of stdout has been full for long
        shown = process.stdout.read().splitlines()
    assert process.returncode == 0
    assert [int(line.rpartition(" ")[2]) for line in shown] == list(range(LINES))


@skate.remote
class Named:
    def __init__(self, index: int) -> None:
        self.index = index
        print("created")
        print("warned", file=sys.stderr)

    def __repr__(self) -> str:
        return f"Named(index={self.index})"

    def work(self) -> int:
        print("works")
        print("complains", file=sys.stderr)
        return os.getpid()


def test_an_actor_with_a_repr_shows_it_in_front_of_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with skate.init(engine="local", num_cpus=1):
        pid = skate.get(Named.remote(3).work.remote())
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [f"(Named pid={pid}) created", f"(Named(index=3) pid={pid}) works"]
    assert shown.err.splitlines() == [f"(Named pid={pid}) warned", f"(Named(index=3) pid={pid}) complains"]


@pytest.fixture
def loggers_as_they_were() -> Iterator[None]:
    loggers = [logging.getLogger(), logging.getLogger("skate")]
    before = [(logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


@skate.remote
def log_a_record() -> None:
    logging.getLogger("my").warning("careful", extra={"rows": 5})


@pytest.mark.usefixtures("loggers_as_they_were")
def test_structured_records_have_no_prefix(capfd: pytest.CaptureFixture[str]) -> None:
    with skate.init(engine="local", num_cpus=1, logging_config=skate.LoggingConfig(encoding="JSON")):
        skate.get(log_a_record.remote())
    assert json.loads(capfd.readouterr().err)["rows"] == 5
