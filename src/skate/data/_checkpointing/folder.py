"""The folder of ids of a checkpointed write: committed ids, pending ids, and their removal."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from skate.air import _filesystems as filesystems
from skate.data._io import retrying, streams
from skate.data.checkpoint.checkpoint_writer import PENDING_CHECKPOINT_SUFFIX
from skate.data.checkpoint.interfaces import CheckpointConfig, InvalidCheckpointingConfig

_IDS = ".parquet"
_PENDING = PENDING_CHECKPOINT_SUFFIX + _IDS
# Marks that all rows are written and the ids are being removed: remaining ids no longer count.
_FINISHED = "finished"
_CONCURRENT_REQUESTS = 16


class IdFolder:
    """The ids that earlier runs have recorded.

    Args:
        config: The configuration of the checkpoint.
    """

    def __init__(self, config: CheckpointConfig) -> None:
        self._config = config
        self._filesystem = config.filesystem
        self._path = config.folder

    def begin(self) -> None:
        """Create the folder; complete the removal of ids that a finished run began."""
        if not filesystems.commits_on_close(self._filesystem):
            self._filesystem.create_dir(self._path, recursive=True)
        if any(info.base_name == _FINISHED for info in self._files()):
            self._empty()

    def committed(self) -> set[str]:
        """Return the names of the committed files of ids, without their suffix."""
        names = {info.base_name for info in self._files()}
        return {
            name.removesuffix(_IDS) for name in names if name.endswith(_IDS) and not name.endswith(_PENDING)
        }

    def pending(self) -> set[str]:
        """Return the names of the pending files of ids, whose rows may or may not be written."""
        names = {info.base_name for info in self._files()}
        waiting = {name.removesuffix(_PENDING) for name in names if name.endswith(_PENDING)}
        # On an object store, a commit copies a file and then removes it: a kill in between leaves both.
        return waiting - self.committed()

    def remove_pending(self) -> None:
        """Remove all pending ids."""
        self._delete(info.path for info in self._files() if info.base_name.endswith(_PENDING))

    def ids(self) -> pa.ChunkedArray:
        """Return all committed ids.

        Raises:
            InvalidCheckpointingConfig: They are ids of another column.
        """
        column = self._config.id_column
        with ThreadPoolExecutor(_CONCURRENT_REQUESTS) as pool:
            found = list(pool.map(self._read, self._committed_paths()))
        if not found:
            return pa.chunked_array([], pa.null())
        return pa.concat_tables(found, promote_options="permissive")[column]

    def finish(self) -> None:
        """Remove all ids; from the first removal on, none of them counts."""
        path = posixpath.join(self._path, _FINISHED)

        def write() -> None:
            with self._filesystem.open_output_stream(path):
                pass
            streams.fsync(self._filesystem, path)

        retrying.call(write, f"writing {path}")
        self._empty()
        if not any(info.type == pafs.FileType.File for info in self._entries(recursive=True)):
            retrying.call(lambda: self._filesystem.delete_dir(self._path), f"removing {self._path}")

    # ------------------------------------------------------------

    def _empty(self) -> None:
        self._delete(
            [*self._committed_paths(), *(i.path for i in self._files() if i.base_name.endswith(_PENDING))]
        )
        self._delete([posixpath.join(self._path, _FINISHED)])

    def _committed_paths(self) -> list[str]:
        wanted = self._config.checkpoint_path_partition_filter
        # A partition filter implies that files of ids are in subfolders.
        files = self._files(recursive=wanted is not None)
        paths = [i.path for i in files if i.base_name.endswith(_IDS) and not i.base_name.endswith(_PENDING)]
        return sorted(paths if wanted is None else wanted(paths))

    def _files(self, recursive: bool = False) -> list[pafs.FileInfo]:
        entries = self._entries(recursive)
        return [i for i in entries if i.type == pafs.FileType.File and not i.base_name.startswith(".")]

    def _entries(self, recursive: bool) -> list[pafs.FileInfo]:
        selector = pafs.FileSelector(self._path, recursive=recursive, allow_not_found=True)
        return list(retrying.call(lambda: self._filesystem.get_file_info(selector), f"listing {self._path}"))

    def _read(self, path: str) -> pa.Table:
        column = self._config.id_column

        def read() -> pa.Table:
            with self._filesystem.open_input_file(path) as file:
                parquet = pq.ParquetFile(file)
                if column not in parquet.schema_arrow.names:
                    raise InvalidCheckpointingConfig(
                        f"{path} has no column {column!r}, but {', '.join(map(repr, parquet.schema_arrow.names))}: the "
                        f"ids in {self._config.checkpoint_path} belong to another job. Pass its id_column, or another "
                        f"checkpoint_path"
                    )
                return parquet.read([column])

        return retrying.call(read, f"reading {path}")

    def _delete(self, paths: Iterable[str]) -> None:
        def delete(path: str) -> None:
            try:
                retrying.call(lambda: self._filesystem.delete_file(path), f"removing {path}")
            except FileNotFoundError:
                pass  # another process removed it

        with ThreadPoolExecutor(_CONCURRENT_REQUESTS) as pool:
            list(pool.map(delete, list(paths)))
