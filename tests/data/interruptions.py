"""Writes that are interrupted or killed, and what is found in their folders afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]


class Interrupted(Exception):
    """What ends a program here, where a kill would end the tests."""


def fails_at(number: int, folder: Path) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function over rows that fails at one of them until it is mended; it notes what it has seen."""
    where = str(folder)

    def function(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == number and not os.path.exists(f"{where}/mended"):
            raise Interrupted
        with open(f"{where}/seen", "a") as seen:
            seen.write(f"{row['id']}\n")
        return {"id": row["id"], "double": 2 * row["id"]}

    return function


def interrupted(write: Callable[[], None], folder: Path) -> None:
    """Let a write fail, and mend what makes it fail."""
    with pytest.raises(Interrupted):
        write()
    (folder / "seen").unlink(missing_ok=True)
    (folder / "mended").touch()


def killed(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `killed_write` with arguments."""
    return subprocess.run(
        [sys.executable, "-m", "tests.data.killed_write", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}", **environment},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def visible(folder: Path) -> list[str]:
    """Return the files that a reader of the folder finds."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if not path.parts[0].startswith("_skate"))


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """Return all rows that were written, in the order of the names of files."""
    return [
        row for name in visible(folder) for row in pq.read_table(folder / name, partitioning=None).to_pylist()
    ]


def ids_in(folder: Path) -> list[int]:
    """Return the ids of all rows that were written, sorted."""
    return sorted(row["id"] for row in rows_in(folder))


def noted(folder: Path) -> list[Any]:
    """Return the ids that count, sorted."""
    files = [path for path in folder.glob("*.parquet") if not path.name.endswith(".pending.parquet")]
    return sorted(row for path in files for row in pq.read_table(path)["id"].to_pylist())
