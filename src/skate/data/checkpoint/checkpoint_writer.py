"""Writes the ids of rows: pending ids before the rows are written, committed ids afterwards."""

from __future__ import annotations

import posixpath
import uuid
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from skate.air import _filesystems as filesystems
from skate.data._io import retrying, streams
from skate.data.block import BlockAccessor
from skate.data.checkpoint.interfaces import CheckpointConfig

__all__ = ["PENDING_CHECKPOINT_SUFFIX", "BatchBasedCheckpointWriter", "PendingCheckpoint"]

PENDING_CHECKPOINT_SUFFIX = ".pending"


@dataclass(frozen=True)
class PendingCheckpoint:
    """The paths of the ids of rows that are being written.

    Attributes:
        pending_path: The path before the commit.
        committed_path: The path after the commit.
    """

    pending_path: str
    committed_path: str


class BatchBasedCheckpointWriter:
    """Writes one file of ids per task.

    Args:
        config: The configuration of the checkpoint.
        makes_folder: Create the folder if it is missing.
    """

    def __init__(self, config: CheckpointConfig, *, makes_folder: bool = True) -> None:
        self._column = config.id_column
        self._filesystem = config.filesystem
        self._folder = config.folder
        # An object store has no folders, and writes files atomically.
        self._moves = not filesystems.commits_on_close(self._filesystem)
        if self._moves and makes_folder:
            self._filesystem.create_dir(self._folder, recursive=True)

    def write_block_checkpoint(self, block: BlockAccessor) -> None:
        """Commit the ids of a written block."""
        if block.num_rows():
            self.write_checkpoint(block.to_arrow()[self._column], uuid.uuid4().hex)

    def write_checkpoint(self, ids: Any, checkpoint_id: str) -> None:
        """Commit the ids of written rows atomically."""
        path = posixpath.join(self._folder, f"{checkpoint_id}.parquet")
        hidden = posixpath.join(self._folder, f".{checkpoint_id}.parquet.partial") if self._moves else path
        self._write(ids, hidden)
        if self._moves:
            retrying.call(lambda: self._filesystem.move(hidden, path), f"writing {path}")
            streams.fsync(self._filesystem, self._folder)

    def write_pending_checkpoint(self, id_column_data: Any, checkpoint_id: str) -> PendingCheckpoint | None:
        """Write the pending ids of rows that are about to be written.

        Args:
            id_column_data: The ids as an Arrow array.
            checkpoint_id: The name of the file.

        Returns:
            The argument of `commit_checkpoint`; None without rows.
        """
        if not len(id_column_data):
            return None
        pending = self.pending(checkpoint_id)
        self._write(id_column_data, pending.pending_path)
        return pending

    def pending(self, checkpoint_id: str) -> PendingCheckpoint:
        """Return the paths of the ids with this name, before and after their commit."""
        stem = posixpath.join(self._folder, checkpoint_id)
        return PendingCheckpoint(f"{stem}{PENDING_CHECKPOINT_SUFFIX}.parquet", f"{stem}.parquet")

    def commit_checkpoint(self, pending: PendingCheckpoint) -> None:
        """Commit pending ids; a repeated commit has no effect.

        Raises:
            FileNotFoundError: The ids are neither pending nor committed.
        """
        retrying.call(lambda: self._commit(pending), f"committing {pending.committed_path}")
        if self._moves:
            streams.fsync(self._filesystem, self._folder)

    def _commit(self, pending: PendingCheckpoint) -> None:
        paths = [pending.pending_path, pending.committed_path]
        is_pending, is_committed = (
            info.type != pafs.FileType.NotFound for info in self._filesystem.get_file_info(paths)
        )
        if is_committed and is_pending:
            self._filesystem.delete_file(pending.pending_path)
        elif is_pending:
            self._filesystem.move(pending.pending_path, pending.committed_path)
        elif not is_committed:
            raise FileNotFoundError(
                f"neither {pending.pending_path} nor {pending.committed_path} exists: another program has removed "
                f"the ids of rows that were being written"
            )

    def _write(self, ids: Any, path: str) -> None:
        table = pa.table({self._column: ids})
        retrying.call(lambda: pq.write_table(table, path, filesystem=self._filesystem), f"writing {path}")
        streams.fsync(self._filesystem, path)
