"""Writing ids: pending ones, which count for nothing, and those of rows that are written."""

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
    """Ids of rows that are being written.

    Attributes:
        pending_path: Where they are.
        committed_path: Where they will be when the rows are written.
    """

    pending_path: str
    committed_path: str


class BatchBasedCheckpointWriter:
    """Writes a file of ids for all rows that a task writes.

    Args:
        config: Where they go.
        makes_folder: Make the folder if it is not there.
    """

    def __init__(self, config: CheckpointConfig, *, makes_folder: bool = True) -> None:
        self._column = config.id_column
        self._filesystem = config.filesystem
        self._folder = config.folder
        # A store of objects has no folders, and there a file appears whole.
        self._moves = not filesystems.commits_on_close(self._filesystem)
        if self._moves and makes_folder:
            self._filesystem.create_dir(self._folder, recursive=True)

    def write_block_checkpoint(self, block: BlockAccessor) -> None:
        """Note that the rows of a block are written."""
        if block.num_rows():
            self.write_checkpoint(block.to_arrow()[self._column], uuid.uuid4().hex)

    def write_checkpoint(self, ids: Any, checkpoint_id: str) -> None:
        """Note that the rows with these ids are written, in a file that appears whole."""
        path = posixpath.join(self._folder, f"{checkpoint_id}.parquet")
        hidden = posixpath.join(self._folder, f".{checkpoint_id}.parquet.partial") if self._moves else path
        self._write(ids, hidden)
        if self._moves:
            retrying.call(lambda: self._filesystem.move(hidden, path), f"writing {path}")
            streams.fsync(self._filesystem, self._folder)

    def write_pending_checkpoint(self, id_column_data: Any, checkpoint_id: str) -> PendingCheckpoint | None:
        """Note which rows are going to be written, without saying that they are.

        Args:
            id_column_data: Their ids, an Arrow array.
            checkpoint_id: What names the file.

        Returns:
            What `commit_checkpoint` takes; None if there are no rows.
        """
        if not len(id_column_data):
            return None
        pending = self.pending(checkpoint_id)
        self._write(id_column_data, pending.pending_path)
        return pending

    def pending(self, checkpoint_id: str) -> PendingCheckpoint:
        """Return where the ids of that name are, before and after they are committed."""
        stem = posixpath.join(self._folder, checkpoint_id)
        return PendingCheckpoint(f"{stem}{PENDING_CHECKPOINT_SUFFIX}.parquet", f"{stem}.parquet")

    def commit_checkpoint(self, pending: PendingCheckpoint) -> None:
        """Let pending ids count; those that count already stay as they are.

        Raises:
            FileNotFoundError: They are neither pending nor committed.
        """
        retrying.call(lambda: self._commit(pending), f"committing {pending.committed_path}")
        if self._moves:
            streams.fsync(self._filesystem, self._folder)

    def _commit(self, pending: PendingCheckpoint) -> None:
        paths = [pending.pending_path, pending.committed_path]
        waits, counts = (
            info.type != pafs.FileType.NotFound for info in self._filesystem.get_file_info(paths)
        )
        if counts and waits:
            self._filesystem.delete_file(pending.pending_path)
        elif waits:
            self._filesystem.move(pending.pending_path, pending.committed_path)
        elif not counts:
            raise FileNotFoundError(
                f"neither {pending.pending_path} nor {pending.committed_path} is there: somebody has removed the ids "
                f"of rows that were being written"
            )

    def _write(self, ids: Any, path: str) -> None:
        table = pa.table({self._column: ids})
        retrying.call(lambda: pq.write_table(table, path, filesystem=self._filesystem), f"writing {path}")
        streams.fsync(self._filesystem, path)
