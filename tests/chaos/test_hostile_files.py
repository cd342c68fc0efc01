"""Files that are cut off, too long, damaged or malicious: readers return rows or raise, and do no more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos import attacks
from tests.chaos.arena import PROGRAMS, Arena

FORMATS = [
    *(
        "arrow",
        "audio",
        "avro",
        "csv",
        "images",
        "json",
        "numpy",
        "orc",
        "parquet",
        "text",
        "tfrecords",
        "videos",
    ),
    "webdataset",
]
FILES = 500
# What a caller can expect of a reader: errors of the content, of the system, of Arrow, or too large a claim.
EXPECTED = {"ValueError", "OSError", "ArrowException", "MemoryError"}
# pyarrow 26 does not catch what its own C++ code throws while it describes a column of a Parquet footer.
KNOWN_ABORTS = {"parquet": "terminate called after throwing an instance of 'parquet::ParquetException'"}


def read_hostile(form: str, folder: Path, count: int, seed: int, arena: Arena) -> list[list[str]]:
    """Return what became of each file; fails if one has run code, or has ended or stopped its process."""
    outcomes: list[list[str]] = []
    first = 0
    while first < count:
        run = subprocess.run(
            [sys.executable, "-W", "ignore", str(PROGRAMS / "hostile_files.py"), form, str(folder)]
            + [str(number) for number in (count, seed, first)],
            env=arena.environment(),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        lines = [line.split() for line in run.stdout.splitlines()]
        outcomes += [line for line in lines if line[1] != "reading"]
        if run.returncode == 0:
            break
        known = KNOWN_ABORTS.get(form)
        assert known is not None, f"{form} file {lines[-1:]} of seed {seed}: {run.returncode}\n{run.stderr}"
        assert known in run.stderr, f"{form} file {lines[-1:]} of seed {seed}: {run.returncode}\n{run.stderr}"
        first = int(lines[-1][0]) + 1
    attacks.record(len(outcomes))
    for outcome in outcomes:
        assert outcome[1] == "rows" or EXPECTED & set(outcome), f"{form}, seed {seed}: {' '.join(outcome)}"
    return outcomes


@pytest.mark.parametrize("form", ["arrow", "numpy", "webdataset"])
def test_malicious_files_run_no_code(form: str, arena: Arena, tmp_path: Path) -> None:
    """The files of a format as they are, some with a pickle that runs a command, and a few damaged ones."""
    outcomes = read_hostile(form, tmp_path, 25, 0, arena)
    assert {outcome[1] for outcome in outcomes} == {"rows", "error"}
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.chaos
@pytest.mark.timeout(900)  # the programs that read the files have limits of their own
@pytest.mark.parametrize("form", FORMATS)
def test_damaged_files_give_rows_or_a_typed_error(form: str, arena: Arena, tmp_path: Path) -> None:
    """Hundreds of damaged files of each format: no crash, no hang, no code, no other error."""
    outcomes = read_hostile(form, tmp_path, FILES, 1, arena)
    assert len(outcomes) >= FILES - 10
    assert not (tmp_path / "PWNED").exists()
