"""What tests of readers and writers share."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import cloudpickle
import pyarrow as pa

from skate.data._block import rows, tables
from skate.data.datasource import Datasink, Datasource, TaskContext, WriteResult


def blocks(source: Datasource, parallelism: int = 2) -> list[pa.Table]:
    """Read a source as workers do: each task through a pickle."""
    tasks = source.get_read_tasks(parallelism)
    return [block for task in tasks for block in pickle.loads(cloudpickle.dumps(task))()]


def read(source: Datasource, parallelism: int = 2) -> pa.Table:
    """Read a source as one table."""
    return tables.concat(blocks(source, parallelism))


def read_rows(source: Datasource, parallelism: int = 2) -> list[dict[str, Any]]:
    """Read a source as rows."""
    return list(rows.to_rows(read(source, parallelism)))


def write(sink: Datasink[Any], *parts: pa.Table | Sequence[pa.Table], write_uuid: str = "5f3a") -> Any:
    """Write parts as workers do: the sink through a pickle, each part in a task of its own."""
    sink.on_write_start(None)
    returned = []
    for number, part in enumerate(parts):
        given = [part] if isinstance(part, pa.Table) else list(part)
        context = TaskContext(task_idx=number, kwargs={"write_uuid": write_uuid})
        returned.append(pickle.loads(cloudpickle.dumps(sink)).write(given, context))
    sink.on_write_complete(WriteResult(num_rows=0, size_bytes=0, write_returns=returned))
    return returned
