"""Sinks: what a dataset can be written to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pyarrow as pa

WriteReturnType = TypeVar("WriteReturnType")


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskContext:
    """What a sink is told about the task in which it writes.

    Attributes:
        task_idx: Number of the task.
        kwargs: What the plan passes along; `write_uuid` names the whole write.
        part: A name for what is written, the same whenever this part of the same job is written again.
    """

    task_idx: int
    kwargs: dict[str, Any] = field(default_factory=dict)
    part: str | None = None


@dataclass
class WriteResult(Generic[WriteReturnType]):
    """What all tasks of a write did together.

    Attributes:
        num_rows: Rows written.
        size_bytes: Their bytes as blocks.
        write_returns: What each call of `Datasink.write` returned.
    """

    num_rows: int
    size_bytes: int
    write_returns: list[WriteReturnType]

    @classmethod
    def combine(cls, *results: WriteResult[WriteReturnType]) -> WriteResult[WriteReturnType]:
        """Return several results as one."""
        return cls(
            num_rows=sum(result.num_rows for result in results),
            size_bytes=sum(result.size_bytes for result in results),
            write_returns=[returned for result in results for returned in result.write_returns],
        )


class Datasink(Generic[WriteReturnType]):
    """Derive from this to write to something of your own.

    `write` runs in workers, once for each part; the other methods run in the driver.
    """

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Prepare; called once, before anything is written.

        Args:
            schema: Of what will be written, if it is known by then.
        """

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> WriteReturnType:
        """Write one part; what is returned reaches `on_write_complete`.

        Args:
            blocks: The rows.
            ctx: Which task this is.
        """
        raise NotImplementedError(f"{type(self).__name__} has to define write(blocks, ctx)")

    def on_write_complete(self, write_result: WriteResult[WriteReturnType]) -> None:
        """Finish; called once, when all parts are written."""

    def on_write_failed(self, error: Exception) -> None:
        """Clean up; called once, when the write has failed."""

    def get_name(self) -> str:
        """Return the name that plans and statistics show."""
        return type(self).__name__.removesuffix("Datasink").lstrip("_") or type(self).__name__

    @property
    def supports_distributed_writes(self) -> bool:
        """Whether any worker can write; False keeps the writing in the driver's process."""
        return True

    @property
    def supports_resume(self) -> bool:
        """Whether a write can be resumed: what is written can wait, unseen, until its part is complete."""
        return False

    @property
    def min_rows_per_write(self) -> int | None:
        """How many rows each call of `write` should get at least."""
        return None

    @property
    def min_bytes_per_write(self) -> int | None:
        """How many bytes each call of `write` should get at least."""
        return None
