"""A checkpointed write: skips rows with recorded ids, and records the ids of the rows that it writes.

Tasks stage their files, with pending ids. Only the driver commits the ids of a task, and moves its files to their final
places. If it is killed in between, the next run moves them before it reads the committed ids. Rows without committed
ids are written again. Their old files are removed: with their staging folders or, on an object store, by their names,
which contain the name of the pending ids.
"""

from __future__ import annotations

import logging
import pickle
import posixpath
import re
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa

from skate.data._checkpointing import sinks
from skate.data._checkpointing.folder import IdFolder
from skate.data._checkpointing.ids import DoneIds
from skate.data._execution import Execution
from skate.data._plan import nodes
from skate.data._plan.optimizer import optimize
from skate.data._resuming import locks
from skate.data._resuming.records import Records
from skate.data.checkpoint.checkpoint_writer import BatchBasedCheckpointWriter
from skate.data.checkpoint.interfaces import CheckpointConfig, InvalidCheckpointingOperators
from skate.data.datasource import Datasink, SaveMode
from skate.data.datasource.datasink import WriteResult
from skate.data.datasource.file_datasink import _FileDatasink
from skate.data.exceptions import SystemException

_logger = logging.getLogger(__name__)
_FOLDER = "_skate_ids"  # beside the files
_PART = re.compile(r"[0-9a-f]{32}_\d{6,}_[0-9a-f]{8}")  # the name of the ids and files of a task


# Operations whose result for a row does not depend on other rows.
_ROW_BY_ROW = (
    *(nodes.Read, nodes.Values, nodes.EachRow, nodes.EachBatch, nodes.EachBlock, nodes.Project, nodes.Filter),
    *(
        nodes.Union,
        nodes.Sort,
        nodes.Shuffle,
        nodes.ShuffleBlocks,
        nodes.Repartition,
        nodes.Resize,
        nodes.Write,
    ),
)
_INSTEAD = "Write its input with a checkpoint, read that, and write the rest without one"


class CheckpointedWrite:
    """Writes the rows of a plan whose ids are not recorded.

    Args:
        write: The plan.
        config: The configuration of the checkpoint.
        run: Returns the execution of a plan.

    Raises:
        InvalidCheckpointingOperators: The plan or the sink does not support checkpoints.
    """

    def __init__(
        self, write: nodes.Write, config: CheckpointConfig, run: Callable[[nodes.Node], Execution]
    ) -> None:
        _check_plan(write)
        self._write = write
        self._config = config
        self._run = run
        self._folder = IdFolder(config)
        if not sinks.can_stage(write.sink):
            warnings.warn(
                f"{type(write.sink).__name__} writes rows immediately, and their ids are recorded afterwards: rows "
                f"that a killed program wrote in between are written again by the next one. Let the sink replace "
                f"rows with the same id, or write files",
                UserWarning,
                stacklevel=5,
            )

    def __call__(self) -> WriteResult[Any]:
        """Write the rows that are not done, and return the result of this run.

        Raises:
            ResumeError: Another program writes to the same folder.
            InvalidCheckpointingConfig: The ids are not unique.
        """
        sink = self._write.sink
        if not sinks.can_stage(sink):
            self._folder.begin()
            return self._write_rest(sinks.RecordingAfterSink(sink, self._config), lambda written: None)
        files = _Files(sink, self._config, self._folder)
        with locks.exclusive(sink.filesystem, files.records.folder, sink.try_create_dir):
            return files.around(
                lambda: self._write_rest(
                    sinks.RecordingFileSink(sink, self._config, files.records.staging), files.commit
                )
            )

    def finish(self) -> None:
        """Remove the ids after the sink has been completed, if the configuration requires it."""
        if self._config.delete_checkpoint_on_success:
            try:
                self._folder.finish()
            except OSError as error:
                _logger.warning(
                    "all rows are written, but the ids in %s could not be removed: %s. Remove them before you run this "
                    "again, or its rows will be skipped",
                    self._config.checkpoint_path,
                    error,
                )

    def _write_rest(
        self, recording: sinks.RecordingSink, commit: Callable[[sinks.Written], None]
    ) -> WriteResult[Any]:
        done = self._folder.ids()
        if len(done):
            _logger.info(
                "%d ids are recorded in %s: their rows are skipped", len(done), self._config.checkpoint_path
            )
        # Optimize first: the step that skips rows would block the pushdown of columns and filters.
        plan = _skip_done(optimize(self._write), DoneIds(self._config.id_column, done))
        assert isinstance(plan, nodes.Write)
        whole: WriteResult[Any] = WriteResult(0, 0, [])
        with closing(self._run(replace(plan, sink=recording)).tables()) as reports:  # type: ignore[type-var]  # a generator
            for table in reports:
                for report in table.to_pylist():
                    written: sinks.Written = pickle.loads(report["returned"])
                    commit(written)
                    whole.num_rows += report["rows"]
                    whole.size_bytes += report["bytes"]
                    whole.write_returns.append(written.returned)
        return whole


class _Files:
    """The files of a write: their staging, their commit, and the recovery after a kill."""

    def __init__(self, sink: Any, config: CheckpointConfig, folder: IdFolder) -> None:
        self.records = Records(sink.filesystem, sink.path, sink.try_create_dir, _FOLDER)
        self._sink = sink
        self._config = config
        self._folder = folder

    def around(self, write: Callable[[], WriteResult[Any]]) -> WriteResult[Any]:
        """Recover from earlier runs, write, and clean up."""
        self._folder.begin()
        self._settle()
        if sinks.moves_files(self._sink):
            # On an object store they stay until the end: a worker of a killed driver may still write.
            self._folder.remove_pending()
        try:
            result = write()
        finally:
            self._settle()  # a commit may have been interrupted while moving files
        self._folder.remove_pending()
        return result

    def commit(self, written: sinks.Written) -> None:
        """Commit the ids of a task, and move its files to their final places."""
        if written.ids is None:
            return
        waiting = {
            self._place(file.waiting): posixpath.relpath(file, self._sink.path) for file in written.files
        }
        self._check(waiting)
        self.records.flush_folders(self.records.folder, waiting)
        writer = BatchBasedCheckpointWriter(self._config, makes_folder=False)
        writer.commit_checkpoint(writer.pending(written.ids))
        self.records.move(waiting)

    def _check(self, waiting: dict[str, str]) -> None:
        """Check that staged files exist and replace no other files."""
        if not waiting:
            return
        filesystem = self.records.filesystem
        infos = filesystem.get_file_info([posixpath.join(self.records.folder, place) for place in waiting])
        missing = [info.path for info in infos if not info.is_file]
        if missing:
            raise SystemException(f"{missing[0]} was written but is missing: its rows would be lost")
        targets = [posixpath.join(self._sink.path, name) for name in waiting.values()]
        there = [info.path for info in filesystem.get_file_info(targets) if info.is_file]
        if there or len(set(targets)) < len(targets):
            raise InvalidCheckpointingOperators(
                f"the filename_provider returned {(there or targets)[0]!r}, the name of another file, which would be "
                "replaced: include write_uuid and the number of the row or block in the name"
            )

    def _place(self, path: str) -> str:
        return posixpath.relpath(path, self.records.folder)

    def _settle(self) -> None:
        """Move files with committed ids to their final places, and remove all others."""
        if not sinks.moves_files(self._sink):
            self._remove_strays()
            return
        folders = self.records.staging_folders()
        committed = self._folder.committed()
        places = [place for folder in folders for place in self.records.list_files(folder)]
        self.records.move({place: name for place in places if (name := _committed_name(place, committed))})
        for folder in folders:
            self.records.delete_folder(folder)

    def _remove_strays(self) -> None:
        """On an object store, remove the objects of uncommitted tasks."""
        pending = self._folder.pending()
        if not pending:
            return
        for name in self.records.list_files("", self._sink.path):
            if pending.intersection(_PART.findall(posixpath.basename(name))):
                self.records.delete_file(posixpath.join(self._sink.path, name))


def _committed_name(place: str, committed: set[str]) -> str | None:
    """Return the final name of a staged file; None if its ids are not committed."""
    _, ids, _, name = place.split("/", 3)  # staging folder, ids, attempt, name
    return name if ids in committed else None


def _check_plan(write: nodes.Write) -> None:
    """Check that rows can be skipped without changing other rows.

    Raises:
        InvalidCheckpointingOperators: Skipping rows would change the result.
    """
    for node in write.walk():
        if not isinstance(node, _ROW_BY_ROW):
            raise InvalidCheckpointingOperators(
                f"the result of {node.title} depends on all of its rows, and a run that skips the rows of an earlier "
                f"one would compute something else. {_INSTEAD}; or set checkpoint_config = None"
            )
        if isinstance(node, nodes.Filter) and not node.expression.is_deterministic():
            raise InvalidCheckpointingOperators(
                f"{node.title} keeps different rows in each run, so rows that an earlier run dropped might be written "
                f"now. {_INSTEAD}; or choose by a value of the row, such as a hash of its id"
            )
    _check_sink(write.sink)


def _check_sink(sink: Datasink[Any]) -> None:
    name = type(sink).__name__
    if isinstance(sink, _FileDatasink):
        if sink.mode != SaveMode.APPEND:
            raise InvalidCheckpointingOperators(
                f"mode={str(sink.mode)!r} and checkpoint_config contradict each other: a later run appends to the "
                f"files of an earlier one. Leave out mode, or pass mode='append'"
            )
    elif type(sink).on_write_complete is not Datasink.on_write_complete:
        raise InvalidCheckpointingOperators(
            f"{name} finishes in on_write_complete, when all parts are written: the rows of a killed program are lost, "
            f"although their ids are recorded. Write files (write_parquet, write_csv, …) with a checkpoint, and load "
            f"these; or set checkpoint_config = None"
        )


def _skip_done(node: nodes.Node, done: Callable[[pa.Table, int], pa.Table]) -> nodes.Node:
    """Return a plan that filters the blocks of every source by `done`."""
    if isinstance(node, nodes.Read):
        return nodes.EachBlock(node, "CheckpointFilter", done, compute=node.compute)
    if isinstance(node, nodes.Values):
        return nodes.EachBlock(node, "CheckpointFilter", done)
    return nodes.map_inputs(node, lambda each: _skip_done(each, done))
