"""The step that writes: each task gives what it gets to a sink, and reports what was written."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from skate.data._block import tables
from skate.data._exec.failures import Letter
from skate.data._exec.transforms import Blocks
from skate.data.datasource.datasink import TaskContext, WriteResult


@dataclass(frozen=True)
class Writing:
    """Gives blocks to a sink.

    Attributes:
        title: What it is called in plans and statistics.
        sink: A Datasink.
        job: A name of the whole write.
    """

    title: str
    sink: Any
    job: str

    @property
    def name(self) -> str:
        """What it is called in plans and statistics."""
        return self.title

    def prepare(self) -> None:
        """Set up nothing."""

    def apply(self, blocks: Blocks, index: int) -> Blocks:
        """Write the blocks; yield one row that says what was written."""
        letters: list[Letter] = []
        rows = size = 0

        def without_letters() -> Iterator[pa.Table]:
            nonlocal rows, size
            for block in blocks:
                if isinstance(block, Letter):
                    letters.append(block)
                else:
                    rows += block.num_rows
                    size += tables.nbytes(block)
                    yield block

        context = TaskContext(task_idx=index, kwargs={"write_uuid": self.job}, part=f"{self.job}_{index:06}")
        returned = self.sink.write(without_letters(), context)
        yield from letters
        yield pa.table({"rows": [rows], "bytes": [size], "returned": [pickle.dumps(returned)]})


def result_of(reports: list[pa.Table]) -> WriteResult[Any]:
    """Return what all tasks have written together."""
    rows = [row for report in reports for row in report.to_pylist()]
    return WriteResult(
        num_rows=sum(row["rows"] for row in rows),
        size_bytes=sum(row["bytes"] for row in rows),
        write_returns=[pickle.loads(row["returned"]) for row in rows],
    )
