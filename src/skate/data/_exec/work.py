"""The work of a step: read or take blocks, put them through its transforms, and make blocks of a good size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from skate.data._block import batches
from skate.data._exec import meter
from skate.data._exec.failures import FailedRows
from skate.data._exec.transforms import Transform, resize_blocks
from skate.data.context import DataContext
from skate.exceptions import RayTaskError


@dataclass(frozen=True)
class Step:
    """Transforms that follow each other in one task.

    Attributes:
        transforms: What is done with each block.
        block_size: Bytes of the largest blocks to make; None leaves them as they come.
        reads: What the source is called, if what the tasks get are parts of one, to be called.
        context: The settings of the dataset, which user code may ask for.
    """

    transforms: tuple[Transform, ...]
    block_size: int | None
    reads: str | None = None
    context: DataContext | None = None

    @property
    def name(self) -> str:
        """What it is called in plans and statistics."""
        return "->".join([*([self.reads] if self.reads else []), *(each.name for each in self.transforms)])

    def prepare(self) -> None:
        """Make the instances of the user's classes."""
        for transform in self.transforms:
            transform.prepare()

    def run(self, argument: Any, blocks: Sequence[pa.Table], index: int) -> Iterator[pa.Table | FailedRows]:
        """Yield what the transforms make of a part of a source, or of blocks."""
        stream: Any = self._read(argument) if self.reads else iter(blocks)
        for transform in self.transforms:
            stream = transform.apply(stream, index)
        made = stream if self.block_size is None else resize_blocks(stream, self.block_size)
        tolerant = self.context is not None and self.context.max_errored_blocks != 0
        return self._until_error(made) if tolerant else made

    def _until_error(self, made: Iterator[pa.Table | FailedRows]) -> Iterator[pa.Table | FailedRows]:
        """Yield the same; an error ends it, and is noted for whoever counts how many there may be."""
        try:
            yield from made
        except Exception as error:
            meter.current().notes["errored"] = RayTaskError.from_exception(self.name, error)
            yield pa.table({})

    def _read(self, part: Any) -> Iterator[pa.Table]:
        files = list(getattr(part.metadata, "input_files", None) or ())
        if files:
            meter.current().notes["files"] = files
        for block in part():
            yield block if isinstance(block, pa.Table) else batches.to_block(block)
