"""Sinks that record the ids of the rows that a task writes."""

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
    """The result of a task.

    Attributes:
        returned: The return value of the sink.
        ids: The name of the pending ids that the driver commits; None if there is nothing to commit.
        files: The staged files that the driver then moves to their final places.
    """

    returned: Any
    ids: str | None = None
    files: tuple[StagedFile, ...] = ()


class RecordingSink(Datasink[Written]):
    """Writes rows to a sink, and records their ids.

    Args:
        sink: The sink.
        config: The configuration of the checkpoint.
    """

    # Each task is committed as soon as it has reported, in any order.
    commits_parts = True

    def __init__(self, sink: Any, config: CheckpointConfig) -> None:
        self._sink = sink
        self._config = config

    def get_name(self) -> str:
        """Return the name of the sink."""
        return str(self._sink.get_name())

    @property
    def min_rows_per_write(self) -> int | None:
        """Minimum number of rows per call of `write`."""
        found: int | None = self._sink.min_rows_per_write
        return found

    def _writer(self) -> BatchBasedCheckpointWriter:
        # The driver creates the folder and removes it at the end: a late task must not create it again.
        return BatchBasedCheckpointWriter(self._config, makes_folder=False)


class RecordingFileSink(RecordingSink):
    """Stages files; the driver moves them and commits their ids.

    The ids are pending before the first file is written, so that the files of a killed program can be found by them.
    Every attempt of a task uses its own names, because a task is retried if its worker dies after its report.

    Args:
        sink: The sink of the files.
        config: The configuration of the checkpoint.
        staging: The folder for staged files.
    """

    def __init__(self, sink: _FileDatasink, config: CheckpointConfig, staging: str) -> None:
        super().__init__(sink, config)
        self._staging = staging

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> Written:
        """Write the rows of one task."""
        blocks = list(blocks)  # as writers of files do
        found = ids.collect_ids(blocks, self._config.id_column)
        if not len(found):
            return Written(self._sink.write(iter(blocks), ctx))
        name = f"{ctx.part}_{uuid.uuid4().hex[:8]}"
        self._writer().write_pending_checkpoint(found, name)
        sink = copy.copy(self._sink)  # several threads may write at a time
        sink.stage_in(posixpath.join(self._staging, name))
        returned = sink.write(iter(blocks), replace(ctx, part=name))
        if not isinstance(returned, list) or not all(isinstance(path, str) for path in returned):
            raise InvalidCheckpointingOperators(
                f"{type(self._sink).__name__}.write returned a {type(returned).__name__}: it has to return the list of "
                f"paths that super().write returns, which assigns files to ids"
            )
        waiting = tuple(path for path in returned if isinstance(path, StagedFile))
        return Written([str(path) for path in returned], name, waiting)


class RecordingAfterSink(RecordingSink):
    """Records ids after the sink has written the rows; after a kill in between, rows are written again."""

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> Written:
        """Write the rows of one task."""
        column = self._config.id_column
        found: list[pa.Table] = []

        def remember_ids() -> Iterator[pa.Table]:
            for block in blocks:
                if block.num_rows:
                    ids.collect_ids([block], column)  # checks the ids before the sink gets the rows
                    found.append(block.select([column]))
                yield block

        returned = self._sink.write(remember_ids(), ctx)
        done = ids.collect_ids(found, column)
        if len(done):
            name = f"{ctx.part}_{uuid.uuid4().hex[:8]}"
            self._writer().write_checkpoint(done, name)
        return Written(returned)


def can_stage(sink: Any) -> bool:
    """Return whether a sink writes files, which can be staged until their ids are committed."""
    return isinstance(sink, _FileDatasink)


def moves_files(sink: _FileDatasink) -> bool:
    """Return whether the files of a sink are staged and moved; objects get their final names at once."""
    return not filesystems.commits_on_close(sink.filesystem)
