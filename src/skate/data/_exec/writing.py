"""The transform that writes blocks to a sink and reports what was written."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cloudpickle
import pyarrow as pa

from skate.data._block import frames, tables
from skate.data._exec import meter
from skate.data._exec.failures import FailedRows
from skate.data._exec.transforms import Blocks
from skate.data._exec.units import split_task_index
from skate.data.datasource.datasink import TaskContext, WriteResult


@dataclass(frozen=True)
class WriteBlocks:
    """Writes blocks to a sink.

    Attributes:
        title: The name of the transform in plans and statistics.
        sink: A Datasink.
        job: A unique name of the write.
        in_units: The write is resumable: the names of its files contain their unit.
    """

    title: str
    sink: Any
    job: str
    in_units: bool = False

    @property
    def name(self) -> str:
        """The name of the transform in plans and statistics."""
        return self.title

    @property
    def commits_parts(self) -> bool:
        """Whether each task is committed as soon as it has reported, in any order."""
        return self.in_units or getattr(self.sink, "commits_parts", False)

    def prepare(self) -> None:
        """Do nothing: the sink has been prepared by the driver."""

    def apply(self, blocks: Blocks, index: int) -> Blocks:
        """Write the blocks; yield one row that describes what was written."""
        failed: list[FailedRows] = []
        rows = size = 0

        def without_failed_rows() -> Iterator[pa.Table]:
            nonlocal rows, size
            for block in blocks:
                if isinstance(block, FailedRows):
                    failed.append(block)
                else:
                    rows += block.num_rows
                    size += tables.nbytes(block)
                    yield frames.without_mark(block)

        context = TaskContext(task_idx=index, kwargs={"write_uuid": self.job}, part=self._part(index))
        returned = self.sink.write(without_failed_rows(), context)
        yield from failed
        meter.current().notes["written"] = rows, size
        yield pa.table({"rows": [rows], "bytes": [size], "returned": [cloudpickle.dumps(returned)]})

    def _part(self, index: int) -> str:
        """Return the name of the files of a task, which is the same when the task is retried."""
        if not self.in_units:
            return f"{self.job}_{index:06}"
        unit, task = split_task_index(index)
        return f"{self.job}_{unit:06}_{task:06}"


def result_of(reports: list[pa.Table]) -> WriteResult[Any]:
    """Return the total of the reports of all tasks."""
    rows = [row for report in reports for row in report.to_pylist()]
    return WriteResult(
        num_rows=sum(row["rows"] for row in rows),
        size_bytes=sum(row["bytes"] for row in rows),
        write_returns=[pickle.loads(row["returned"]) for row in rows],
    )
