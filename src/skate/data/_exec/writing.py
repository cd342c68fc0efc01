"""The step that writes: each task gives what it gets to a sink, and reports what was written."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from skate.data._block import frames, tables
from skate.data._exec.failures import FailedRows
from skate.data._exec.transforms import Blocks
from skate.data._exec.units import split_task_index
from skate.data.datasource.datasink import TaskContext, WriteResult


@dataclass(frozen=True)
class WriteBlocks:
    """Gives blocks to a sink.

    Attributes:
        title: What it is called in plans and statistics.
        sink: A Datasink.
        job: A name of the whole write.
        in_units: It can be resumed: what is written is named by its unit.
    """

    title: str
    sink: Any
    job: str
    in_units: bool = False

    @property
    def name(self) -> str:
        """What it is called in plans and statistics."""
        return self.title

    @property
    def commits_parts(self) -> bool:
        """Whether what is written counts as soon as its task has reported, in whatever order that is."""
        return self.in_units or getattr(self.sink, "commits_parts", False)

    def prepare(self) -> None:
        """Set up nothing."""

    def apply(self, blocks: Blocks, index: int) -> Blocks:
        """Write the blocks; yield one row that says what was written."""
        letters: list[FailedRows] = []
        rows = size = 0

        def without_failed_rows() -> Iterator[pa.Table]:
            nonlocal rows, size
            for block in blocks:
                if isinstance(block, FailedRows):
                    letters.append(block)
                else:
                    rows += block.num_rows
                    size += tables.nbytes(block)
                    yield frames.without_mark(block)

        context = TaskContext(task_idx=index, kwargs={"write_uuid": self.job}, part=self._part(index))
        returned = self.sink.write(without_failed_rows(), context)
        yield from letters
        yield pa.table({"rows": [rows], "bytes": [size], "returned": [pickle.dumps(returned)]})

    def _part(self, index: int) -> str:
        """Return what names the files of a task, the same whenever it is done again."""
        if not self.in_units:
            return f"{self.job}_{index:06}"
        unit, task = split_task_index(index)
        return f"{self.job}_{unit:06}_{task:06}"


def result_of(reports: list[pa.Table]) -> WriteResult[Any]:
    """Return what all tasks have written together."""
    rows = [row for report in reports for row in report.to_pylist()]
    return WriteResult(
        num_rows=sum(row["rows"] for row in rows),
        size_bytes=sum(row["bytes"] for row in rows),
        write_returns=[pickle.loads(row["returned"]) for row in rows],
    )
