"""The folder of ids: which ones count, which are pending, and how they are forgotten all at once."""

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
# Says that all rows are written: the ids beside it count for nothing, and somebody was killed while removing them.
_FINISHED = "finished"
_AT_ONCE = 16


class IdFolder:
    """What earlier runs have noted.

    Args:
        config: Where.
    """

    def __init__(self, config: CheckpointConfig) -> None:
        self._config = config
        self._filesystem = config.filesystem
        self._path = config.folder

    def begin(self) -> None:
        """Make the folder; remove what a finished run could not."""
        if not filesystems.commits_on_close(self._filesystem):
            self._filesystem.create_dir(self._path, recursive=True)
        if any(info.base_name == _FINISHED for info in self._files()):
            self._empty()

    def committed(self) -> set[str]:
        """Return the names of the files that count, without what is after their names."""
        names = {info.base_name for info in self._files()}
        return {
            name.removesuffix(_IDS) for name in names if name.endswith(_IDS) and not name.endswith(_PENDING)
        }

    def pending(self) -> set[str]:
        """Return the names of the files of rows of which nobody knows whether they are written."""
        names = {info.base_name for info in self._files()}
        waiting = {name.removesuffix(_PENDING) for name in names if name.endswith(_PENDING)}
        # On a store of objects a file is copied and then removed: who was killed in between has left both.
        return waiting - self.committed()

    def forget_pending(self) -> None:
        """Remove the ids of which nobody knows whether their rows are written."""
        self._delete(info.path for info in self._files() if info.base_name.endswith(_PENDING))

    def ids(self) -> pa.ChunkedArray:
        """Return all ids that count.

        Raises:
            InvalidCheckpointingConfig: They are of another column.
        """
        column = self._config.id_column
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = list(pool.map(self._read, self._counting()))
        if not found:
            return pa.chunked_array([], pa.null())
        return pa.concat_tables(found, promote_options="permissive")[column]

    def finish(self) -> None:
        """Forget all ids: none of them count as soon as the first is removed."""
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
        self._delete([*self._counting(), *(i.path for i in self._files() if i.base_name.endswith(_PENDING))])
        self._delete([posixpath.join(self._path, _FINISHED)])

    def _counting(self) -> list[str]:
        wanted = self._config.checkpoint_path_partition_filter
        # Somebody who parts files of ids by values has put them into folders.
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
                        f"ids in {self._config.checkpoint_path} are of another job. Pass its id_column, or another "
                        f"checkpoint_path"
                    )
                return parquet.read([column])

        return retrying.call(read, f"reading {path}")

    def _delete(self, paths: Iterable[str]) -> None:
        def delete(path: str) -> None:
            try:
                retrying.call(lambda: self._filesystem.delete_file(path), f"removing {path}")
            except FileNotFoundError:
                pass  # somebody else was faster

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(delete, list(paths)))
