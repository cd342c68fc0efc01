"""What a task does around the writing of its rows: it notes their ids."""

from __future__ import annotations

import copy
import posixpath
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from skate.air import _filesystems as filesystems
from skate.data._checkpointing import ids
from skate.data.checkpoint.checkpoint_writer import BatchBasedCheckpointWriter
from skate.data.checkpoint.interfaces import CheckpointConfig, InvalidCheckpointingOperators
from skate.data.datasource.datasink import Datasink, TaskContext
from skate.data.datasource.file_datasink import StagedFile, _FileDatasink


@dataclass(frozen=True)
class Written:
    """What a task has done.

    Attributes:
        returned: What the sink has returned.
        ids: What names the ids that count as soon as the driver commits them; None if there is nothing to commit.
        files: The files to move to their places then.
    """

    returned: Any
    ids: str | None = None
    files: tuple[StagedFile, ...] = ()


class RecordingSink(Datasink[Written]):
    """Gives rows to a sink, and notes their ids.

    Args:
        sink: What writes.
        config: Where the ids go.
    """

    # What is written counts as soon as its task has reported: reports need not come in order.
    commits_parts = True

    def __init__(self, sink: Any, config: CheckpointConfig) -> None:
        self._sink = sink
        self._config = config

    def get_name(self) -> str:
        """Return the name of what writes."""
        return str(self._sink.get_name())

    @property
    def min_rows_per_write(self) -> int | None:
        """How many rows each call of `write` should get at least."""
        found: int | None = self._sink.min_rows_per_write
        return found

    def _writer(self) -> BatchBasedCheckpointWriter:
        # The driver has made the folder, and removes it at the end: a task that comes too late must not bring it back.
        return BatchBasedCheckpointWriter(self._config, makes_folder=False)


class RecordingFileSink(RecordingSink):
    """Lets files wait, and leaves it to the driver to move them and to let their ids count.

    The ids are pending before the first file is there: what a killed program has left is found by them. Every attempt
    of a task has names of its own, because a worker may die after it has reported, and then the task is done again.

    Args:
        sink: What writes the files.
        config: Where the ids go.
        staging_folder: The folder in which files wait.
    """

    def __init__(self, sink: _FileDatasink, config: CheckpointConfig, staging_folder: str) -> None:
        super().__init__(sink, config)
        self._staging_folder = staging_folder

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> Written:
        """Write one part."""
        blocks = list(blocks)  # which writers of files do anyway
        found = ids.of(blocks, self._config.id_column)
        if not len(found):
            return Written(self._sink.write(iter(blocks), ctx))
        name = f"{ctx.part}_{uuid.uuid4().hex[:8]}"
        self._writer().write_pending_checkpoint(found, name)
        sink = copy.copy(self._sink)  # several threads may write at a time
        sink.stage_in(posixpath.join(self._staging_folder, name))
        returned = sink.write(iter(blocks), replace(ctx, part=name))
        if not isinstance(returned, list) or not all(isinstance(path, str) for path in returned):
            raise InvalidCheckpointingOperators(
                f"{type(self._sink).__name__}.write returned a {type(returned).__name__}: it has to return the list of "
                f"paths that super().write returns, or nobody knows which files go with which ids"
            )
        waiting = tuple(path for path in returned if isinstance(path, StagedFile))
        return Written([str(path) for path in returned], name, waiting)


class RecordingAfterSink(RecordingSink):
    """Notes ids when the sink has what it was given: if the program is killed in between, rows are written again."""

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> Written:
        """Write one part."""
        column = self._config.id_column
        found: list[pa.Table] = []

        def noted() -> Iterator[pa.Table]:
            for block in blocks:
                if block.num_rows:
                    ids.of([block], column)  # which complains before the sink has the rows
                    found.append(block.select([column]))
                yield block

        returned = self._sink.write(noted(), ctx)
        done = ids.of(found, column)
        if len(done):
            name = f"{ctx.part}_{uuid.uuid4().hex[:8]}"
            self._writer().write_checkpoint(done, name)
        return Written(returned)


def waits(sink: Any) -> bool:
    """Tell whether a sink writes files that can wait until their ids count."""
    return isinstance(sink, _FileDatasink)


def moves(sink: _FileDatasink) -> bool:
    """Tell whether files of a sink wait under other names; objects get theirs at once."""
    return not filesystems.commits_on_close(sink.filesystem)
