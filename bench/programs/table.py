"""The table that the data programs read: two million orders in Parquet files, the same for every system."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 2_000_000
FILES = 4
SHOPS = 1000


def folder() -> str:
    """Return an empty folder that is removed at the end."""
    made = tempfile.mkdtemp(prefix="bench-data-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def orders() -> str:
    """Write the table, and return its folder."""
    target = folder()
    random = np.random.default_rng(7)
    each = ROWS // FILES
    names = np.array([f"item-{number:04}" for number in range(977)])
    for part in range(FILES):
        table = pa.table(
            {
                "id": np.arange(part * each, (part + 1) * each),
                "shop": random.integers(0, SHOPS, each),
                "price": random.random(each),
                "item": names[random.integers(0, len(names), each)],
            }
        )
        pq.write_table(table, Path(target) / f"{part}.parquet")
    return target


def shops() -> str:
    """Write a row for each shop, and return the folder."""
    target = folder()
    table = pa.table({"shop": np.arange(SHOPS), "city": [f"city-{number % 50}" for number in range(SHOPS)]})
    pq.write_table(table, Path(target) / "shops.parquet")
    return target
