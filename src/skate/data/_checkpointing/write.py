"""A write that leaves out the rows whose ids are noted, and notes those of the rows that it writes.

Tasks let files wait, with their ids pending. The driver, and nobody else, lets the ids of a part count, and moves its
files to their places. If it is killed in between, the next run moves them, before it asks which ids are done. Rows of
which no ids count are written again, and what is left of their files is removed: by the folders in which they wait, or,
on a store of objects, by their names, which hold the name of the pending ids.
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

from skate.data._checkpointing import plans, sinks
from skate.data._checkpointing.folder import IdFolder
from skate.data._checkpointing.ids import DoneIds
from skate.data._execution import Execution
from skate.data._plan import nodes
from skate.data._plan.optimizer import optimize
from skate.data._resuming import locks
from skate.data._resuming.records import Records
from skate.data.checkpoint.checkpoint_writer import BatchBasedCheckpointWriter
from skate.data.checkpoint.interfaces import CheckpointConfig, InvalidCheckpointingOperators
from skate.data.datasource.datasink import WriteResult
from skate.data.exceptions import SystemException

_logger = logging.getLogger(__name__)
_FOLDER = "_skate_ids"  # beside the files
_PART = re.compile(r"[0-9a-f]{32}_\d{6,}_[0-9a-f]{8}")  # what names ids and their files, as tasks make it


class CheckpointedWrite:
    """Writes the rows of a plan that are not done.

    Args:
        write: The plan.
        config: Where ids are noted.
        run: Starts a run of a plan.

    Raises:
        InvalidCheckpointingOperators: Ids cannot tell which of its rows are done.
    """

    def __init__(
        self, write: nodes.Write, config: CheckpointConfig, run: Callable[[nodes.Node], Execution]
    ) -> None:
        plans.check(write)
        self._write = write
        self._config = config
        self._run = run
        self._folder = IdFolder(config)
        if not sinks.waits(write.sink):
            warnings.warn(
                f"{type(write.sink).__name__} has rows at once, and their ids are noted a moment later: rows that a "
                f"killed program has written in between are written again by the next one. Let the sink replace rows "
                f"with the same id, or write files",
                UserWarning,
                stacklevel=5,
            )

    def __call__(self) -> WriteResult[Any]:
        """Write what is not done, and return what this run has written.

        Raises:
            ResumeError: Somebody else writes to the same folder.
            InvalidCheckpointingConfig: The ids do not tell rows apart.
        """
        sink = self._write.sink
        if not sinks.waits(sink):
            self._folder.begin()
            return self._go_on(sinks.RecordingAfterSink(sink, self._config), lambda written: None)
        files = _Files(sink, self._config, self._folder)
        with locks.exclusive(sink.filesystem, files.records.folder, sink.try_create_dir):
            return files.around(
                lambda: self._go_on(
                    sinks.RecordingFileSink(sink, self._config, files.records.waiting), files.commit
                )
            )

    def finish(self) -> None:
        """Forget the ids, if that is wanted, now that the sink has everything."""
        if self._config.delete_checkpoint_on_success:
            try:
                self._folder.finish()
            except OSError as error:
                _logger.warning(
                    "all rows are written, but the ids in %s could not be removed: %s. Remove them before you run this "
                    "again, or it will leave out the rows",
                    self._config.checkpoint_path,
                    error,
                )

    def _go_on(
        self, noting: sinks.RecordingSink, commit: Callable[[sinks.Written], None]
    ) -> WriteResult[Any]:
        done = self._folder.ids()
        if len(done):
            _logger.info(
                "%d ids are noted in %s: their rows are left out", len(done), self._config.checkpoint_path
            )
        # Columns and filters go into the sources first: the step that leaves out rows would be in their way.
        plan = plans.without_done(optimize(self._write), DoneIds(self._config.id_column, done))
        assert isinstance(plan, nodes.Write)
        whole: WriteResult[Any] = WriteResult(0, 0, [])
        with closing(self._run(replace(plan, sink=noting)).tables()) as reports:  # type: ignore[type-var]  # a generator
            for table in reports:
                for report in table.to_pylist():
                    written: sinks.Written = pickle.loads(report["returned"])
                    commit(written)
                    whole.num_rows += report["rows"]
                    whole.size_bytes += report["bytes"]
                    whole.write_returns.append(written.returned)
        return whole


class _Files:
    """The files of a write: where they wait, and what becomes of those of a killed program."""

    def __init__(self, sink: Any, config: CheckpointConfig, folder: IdFolder) -> None:
        self.records = Records(sink.filesystem, sink.path, sink.try_create_dir, _FOLDER)
        self._sink = sink
        self._config = config
        self._folder = folder

    def around(self, write: Callable[[], WriteResult[Any]]) -> WriteResult[Any]:
        """Clean up after earlier runs, write, and clean up after this one."""
        self._folder.begin()
        self._settle()
        if sinks.moves(self._sink):
            # On a store of objects they stay until the end: a worker that has outlived its driver may write still.
            self._folder.forget_pending()
        try:
            result = write()
        finally:
            self._settle()  # and not just remove: somebody may have been interrupted while moving files
        self._folder.forget_pending()
        return result

    def commit(self, written: sinks.Written) -> None:
        """Let the ids of a part count, and give its files their places."""
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
        """Make sure that files are there, and that they replace no others."""
        if not waiting:
            return
        filesystem = self.records.filesystem
        infos = filesystem.get_file_info([posixpath.join(self.records.folder, place) for place in waiting])
        missing = [info.path for info in infos if not info.is_file]
        if missing:
            raise SystemException(f"{missing[0]} was written and is not there: its rows would be lost")
        targets = [posixpath.join(self._sink.path, name) for name in waiting.values()]
        there = [info.path for info in filesystem.get_file_info(targets) if info.is_file]
        if there or len(set(targets)) < len(targets):
            raise InvalidCheckpointingOperators(
                f"the filename_provider gives a file the name of another one, {(there or targets)[0]!r}, which it "
                f"would replace: let it put write_uuid and the number of the row or block into the name"
            )

    def _place(self, path: str) -> str:
        return posixpath.relpath(path, self.records.folder)

    def _settle(self) -> None:
        """Give files whose ids count their places, and remove the others."""
        if not sinks.moves(self._sink):
            self._remove_strays()
            return
        rooms = self.records.staging_folders()
        committed = self._folder.committed()
        places = [place for room in rooms for place in self.records.listed(room)]
        self.records.move({place: name for place in places if (name := _committed_name(place, committed))})
        for room in rooms:
            self.records.delete_folder(room)

    def _remove_strays(self) -> None:
        """On a store of objects, remove those of parts that are not committed."""
        pending = self._folder.pending()
        if not pending:
            return
        for name in self.records.listed("", self._sink.path):
            if pending.intersection(_PART.findall(posixpath.basename(name))):
                self.records.delete_file(posixpath.join(self._sink.path, name))


def _committed_name(place: str, committed: set[str]) -> str | None:
    """Return the name that a waiting file is to have; None if its ids do not count."""
    _, ids, _, name = place.split("/", 3)  # the room, the ids, the attempt
    return name if ids in committed else None
