"""Datasinks, to which datasets are written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pyarrow as pa

WriteReturnType = TypeVar("WriteReturnType")


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskContext:
    """Describe the task in which a datasink writes.

    Attributes:
        task_idx: Index of the task.
        kwargs: Values that the plan passes; `write_uuid` identifies the write.
        part: Identifier of the rows that the task writes, stable across retries and resumed runs.
    """

    task_idx: int
    kwargs: dict[str, Any] = field(default_factory=dict)
    part: str | None = None


@dataclass
class WriteResult(Generic[WriteReturnType]):
    """The combined result of all tasks of a write.

    Attributes:
        num_rows: Number of rows written.
        size_bytes: Size of the blocks, in bytes.
        write_returns: The return value of each call of `Datasink.write`.
    """

    num_rows: int
    size_bytes: int
    write_returns: list[WriteReturnType]

    @classmethod
    def combine(cls, *results: WriteResult[WriteReturnType]) -> WriteResult[WriteReturnType]:
        """Combine several results."""
        return cls(
            num_rows=sum(result.num_rows for result in results),
            size_bytes=sum(result.size_bytes for result in results),
            write_returns=[returned for result in results for returned in result.write_returns],
        )


class Datasink(Generic[WriteReturnType]):
    """Base class of custom datasinks.

    `write` runs in workers, once per task; the other methods run in the driver.
    """

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Prepare the write; called once before anything is written.

        Args:
            schema: Schema of the rows, if it is known.
        """

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> WriteReturnType:
        """Write the blocks of one task; the return value is passed to `on_write_complete`.

        Args:
            blocks: The rows.
            ctx: Description of the task.
        """
        raise NotImplementedError(f"{type(self).__name__} must define write(blocks, ctx)")

    def on_write_complete(self, write_result: WriteResult[WriteReturnType]) -> None:
        """Finish the write; called once after all tasks have succeeded."""

    def on_write_failed(self, error: Exception) -> None:
        """Clean up; called once if the write failed."""

    def get_name(self) -> str:
        """Return the name for plans and statistics."""
        return type(self).__name__.removesuffix("Datasink").lstrip("_") or type(self).__name__

    @property
    def supports_distributed_writes(self) -> bool:
        """Whether any worker can write; False writes in the driver process."""
        return True

    @property
    def supports_resume(self) -> bool:
        """Whether a write is resumable: files can be staged until their task is complete."""
        return False

    @property
    def min_rows_per_write(self) -> int | None:
        """The minimum number of rows per call of `write`."""
        return None

    @property
    def min_bytes_per_write(self) -> int | None:
        """The minimum size of blocks per call of `write`, in bytes."""
        return None
