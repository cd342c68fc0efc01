"""The work of tasks: `Step` transforms blocks one after another, `PartitionWork` needs all blocks of a partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    """A chain of transforms that run in one task.

    Attributes:
        transforms: The transforms, in order.
        block_size: Maximum bytes of a block; None keeps blocks as they are.
        reads: The name of the source, if the argument of each task is a part of a source to read.
        context: The settings of the dataset, as user code sees them.
    """

    transforms: tuple[Transform, ...]
    block_size: int | None
    reads: str | None = None
    context: DataContext | None = None

    @property
    def name(self) -> str:
        """The name of the work in plans and statistics."""
        return "->".join([*([self.reads] if self.reads else []), *(each.name for each in self.transforms)])

    def prepare(self) -> None:
        """Create the instances of user classes."""
        for transform in self.transforms:
            transform.prepare()

    def run(self, argument: Any, blocks: Sequence[pa.Table], index: int) -> Iterator[pa.Table | FailedRows]:
        """Yield the transformed blocks of a part of a source, or of the input blocks."""
        stream: Any = self._read(argument) if self.reads else iter(blocks)
        for transform in self.transforms:
            stream = transform.apply(stream, index)
        made = stream if self.block_size is None else resize_blocks(stream, self.block_size)
        tolerant = self.context is not None and self.context.max_errored_blocks != 0
        return self._until_error(made) if tolerant else made

    def _until_error(self, made: Iterator[pa.Table | FailedRows]) -> Iterator[pa.Table | FailedRows]:
        """Yield the same blocks; end at an error, and record it in the report of an empty block."""
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


@dataclass(frozen=True)
class PartitionWork:
    """Work on all blocks of a partition at once.

    Attributes:
        function: Takes the blocks and the argument of the task, and returns blocks.
        block_size: Maximum bytes of a block; None keeps blocks as they are.
        transforms: Transforms that run afterwards in the same task.
        context: The settings of the dataset, as user code sees them.
    """

    name: str
    function: Callable[[Sequence[pa.Table], Any], Iterator[pa.Table]]
    block_size: int | None = None
    transforms: tuple[Transform, ...] = ()
    context: DataContext | None = None

    def prepare(self) -> None:
        """Create the instances of user classes."""
        for transform in self.transforms:
            transform.prepare()

    def run(self, argument: Any, blocks: Sequence[pa.Table], index: int) -> Iterator[pa.Table | FailedRows]:
        """Yield the blocks that the function and the transforms return."""
        made: Any = self.function(blocks, argument)
        for transform in self.transforms:
            made = transform.apply(made, index)
        return made if self.block_size is None else resize_blocks(made, self.block_size)
