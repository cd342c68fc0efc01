"""What mistakes in calls of datasets are made of: rows, files and correct arguments."""

from __future__ import annotations

import functools
import json
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet

import skate.data as data
from skate.data import (
    Dataset,
)
from tests.misuse.support import Mistake, mistakes

NOWHERE = "/nowhere/absent"


def rows() -> Any:
    """Return a dataset of three rows with columns of numbers, text and lists."""
    return data.from_items([{"id": each, "name": f"n{each}", "list": [each]} for each in range(3)])


def columns(options: Any) -> dict[str, str]:
    """Return the annotations of options as `mistakes` takes them."""
    return {
        name: getattr(kind, "__forward_arg__", str(kind)) for name, kind in options.__annotations__.items()
    }


@functools.cache
def files() -> Path:
    """Return a folder with a small file of each format; it is removed when the process ends."""
    folder = Path(_folder().name)
    table = pa.table({"id": [0, 1, 2], "name": ["a", "b", "c"]})
    pa.parquet.write_table(table, folder / "t.parquet")
    pa.csv.write_csv(table, folder / "t.csv")
    pa.orc.write_table(table, folder / "t.orc")
    pa.feather.write_feather(table, folder / "t.arrow", compression="uncompressed")
    (folder / "t.json").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    (folder / "t.txt").write_text("a\nb\n")
    np.save(folder / "t.npy", np.arange(3))
    with sqlite3.connect(folder / "t.db") as connection:
        connection.execute("CREATE TABLE t(id INTEGER)")
    connection.close()
    return folder


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="skate-misuse-", dir="/tmp")


def path(name: str) -> Callable[[], dict[str, Any]]:
    """Return a function that returns the correct arguments of a reader."""
    return lambda: {"paths": str(files() / name)}


def on(method: str) -> Callable[[], Callable[..., Any]]:
    """Return a function that returns a method of a dataset."""
    return lambda: getattr(rows(), method)


def of_dataset(method: str, **given: Any) -> Iterator[Mistake]:
    """Yield mistakes in a call of a method of a dataset."""
    yield from mistakes(f"ds.{method}", getattr(Dataset, method), on(method), **given)


def identity(row: Any) -> Any:
    """Return a row."""
    return row


def on_rows(function: str, mistake: str, transform: Callable[[Any], Any], *named: str) -> Mistake:
    """Return a mistake that shows at the latest when the plan runs."""
    return Mistake(function, mistake, lambda: finished(transform(rows())), named)


def finished(result: Any) -> Any:
    """Run the plan, if the result is a dataset."""
    return result.take_all() if isinstance(result, Dataset) else result
