"""The documents that the streaming programs read: 6 GB of text in Parquet files, the same for every system.

They are written by a process of their own, so that its memory is not counted as that of the system under test.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

GB = 1_000_000_000
ROW_BYTES = 1000  # of text; a number comes on top
FILE_BYTES = 200_000_000


def written(size: int) -> str:
    """Write documents of so many bytes in memory, and return their folder, which is removed at the end."""
    folder = tempfile.mkdtemp(prefix="bench-documents-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    subprocess.run([sys.executable, __file__, folder, str(size)], check=True)
    return folder


def rows_of(size: int) -> int:
    """Return how many documents so many bytes are."""
    return size // ROW_BYTES


def _write(folder: str, size: int) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(7)
    alphabet = np.frombuffer(b"etaoinshrdlu cmfwyp ", np.uint8)
    pieces = alphabet[random.integers(0, len(alphabet), (20_000, ROW_BYTES // 4), dtype=np.uint8)]
    different = np.tile(pieces, 4)  # so that a cheap compression has something to find
    done = 0
    while done < rows_of(size):
        rows = min(FILE_BYTES // ROW_BYTES, rows_of(size) - done)
        text = different[random.integers(0, len(different), rows)].reshape(-1)
        ends = pa.array(np.arange(rows + 1, dtype=np.int32) * ROW_BYTES)
        column = pa.StringArray.from_buffers(rows, ends.buffers()[1], pa.py_buffer(text))
        table = pa.table({"id": np.arange(done, done + rows), "text": column})
        pq.write_table(
            table,
            Path(folder) / f"{done:09}.parquet",
            compression="lz4",
            use_dictionary=False,
            write_statistics=False,
            row_group_size=25_000,
        )
        done += rows


if __name__ == "__main__":
    _write(sys.argv[1], int(sys.argv[2]))
