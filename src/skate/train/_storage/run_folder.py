"""Where a run is kept: its checkpoints, its metrics, and the record by which it can be gone on with."""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import re
import uuid
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow.fs as pafs

from skate.air import _filesystems as filesystems
from skate.train._failures.errors import StorageFullError
from skate.train._reports.ledger import Kept, Status
from skate.train._reports.metrics import as_json
from skate.train._storage import folders

RECORD = "run.json"
HISTORY = "metrics.jsonl"
_VERSION = 1
_ROOM = 64 << 10  # bytes that must be free when a run begins, for its record and its history
_CHECKPOINT = re.compile(r"checkpoint_\d{6,}")  # as Skate names them; others are the user's


@dataclass
class Record:
    """What is known about a run after it has ended, however it ended.

    Attributes:
        run_id: A name that no other run has.
        status: "running", "finished", "failed" or "interrupted".
        next_index: The number of the next report.
        kept: Its checkpoints.
        metrics: The last report.
        config: What the training function was given.
        failures: How often workers have failed.
        error: What ended it.
        starts: The numbers of the reports at which workers were started, the first time and again.
        score: The metric by which checkpoints are kept, and listed; by age if None.
        order: Whether the highest ("max") or the lowest ("min") score is best.
    """

    run_id: str
    status: str = "running"
    next_index: int = 0
    kept: list[Kept] = field(default_factory=list)
    metrics: dict[str, Any] | None = None
    config: Any = None
    failures: int = 0
    error: str | None = None
    starts: list[int] = field(default_factory=list)
    score: str | None = None
    order: str = "max"


class Storage:
    """The folder of one run.

    Args:
        storage_path: The folder of all runs.
        name: The run's name.
        filesystem: The filesystem of the path; found by the path if not given.
    """

    keeps = True  # records and reports: else another process does, and this one adds parts of checkpoints

    def __init__(self, storage_path: str, name: str, filesystem: Any = None) -> None:
        self.storage_filesystem, self.storage_fs_path = filesystems.resolve(storage_path, filesystem)
        self.experiment_dir_name = name
        self._lines: list[str] = []

    @property
    def experiment_fs_path(self) -> str:
        """The run's folder."""
        return posixpath.join(self.storage_fs_path, self.experiment_dir_name)

    def path_of(self, name: str) -> str:
        """Return the path of something in the run's folder."""
        return posixpath.join(self.experiment_fs_path, name)

    def build_checkpoint_path_from_name(self, checkpoint_name: str) -> str:
        """Return where a checkpoint of a name belongs, for a worker that puts it there itself."""
        return self.path_of(checkpoint_name)

    def prepare(self) -> None:
        """Make the folder, and see that it can be written to: before anybody has trained for hours.

        Raises:
            StorageFullError: There is no room for the run's record; an OSError too.
            OSError: It cannot be written to; says which folder, and why.
        """
        probe = self.path_of(f".writable-{uuid.uuid4().hex}")
        try:
            with folders.full_disk_raises(
                f"the run cannot be kept in {self.experiment_fs_path}: the disk is full. Free some space and call "
                "fit() again: it goes on from the latest checkpoint, which is complete"
            ):
                self.storage_filesystem.create_dir(self.experiment_fs_path, recursive=True)
                try:
                    folders.write(self.storage_filesystem, probe, bytes(_ROOM))
                finally:
                    with contextlib.suppress(OSError):
                        self.storage_filesystem.delete_file(probe)
        except StorageFullError:
            raise
        except OSError as error:
            raise OSError(
                f"the run cannot be kept in {self.experiment_fs_path}: {error}. Give RunConfig a `storage_path` that "
                "can be written to from here and from all workers."
            ) from error

    # ------------------------------------------------------------ checkpoints

    def store(
        self, name: str, filesystem: pafs.FileSystem, folder: str, moved: Callable[[int], None]
    ) -> None:
        """Copy a folder into the run's, under a name; `moved` is told how it gets on, in bytes."""
        target = self.path_of(name)
        self.storage_filesystem.create_dir(target, recursive=True)
        folders.copy(filesystem, folder, self.storage_filesystem, target, moved)

    def name_of(self, filesystem: pafs.FileSystem, folder: str) -> str | None:
        """Return the name of a folder in the run's, with all folders between them; None if it is elsewhere."""
        if filesystem != self.storage_filesystem:
            return None
        within = os.path.realpath if folders.is_here(filesystem) else posixpath.normpath
        name = posixpath.relpath(within(folder), within(self.experiment_fs_path))
        return None if name in (".", "..") or name.startswith("../") else name

    def drop_strays(self, kept: Iterable[str]) -> None:
        """Delete what is there of checkpoints that were not complete when a program that trained was killed."""
        known = set(kept)
        found = self.storage_filesystem.get_file_info(
            pafs.FileSelector(self.experiment_fs_path, allow_not_found=True)
        )
        names = [posixpath.basename(info.path.rstrip("/")) for info in found]
        self.drop(name for name in names if _CHECKPOINT.fullmatch(name) and name not in known)

    def drop(self, names: Iterable[str]) -> None:
        """Delete checkpoints, but for those that are elsewhere and so not the run's."""
        for name in names:
            if posixpath.isabs(name):
                continue
            folders.delete(self.storage_filesystem, self.path_of(name))

    # ------------------------------------------------------------ record and metrics

    def write(self, record: Record) -> None:
        """Keep the record."""
        text = json.dumps({"version": _VERSION, **asdict(record)}, default=repr, indent=1)
        folders.write(self.storage_filesystem, self.path_of(RECORD), text.encode())
        if self._lines and not folders.is_here(self.storage_filesystem):
            # An object store cannot append: the whole history goes there with each record.
            folders.write(self.storage_filesystem, self.path_of(HISTORY), "".join(self._lines).encode())

    def read(self) -> Record | None:
        """Return the record of the run that has this folder; None if there is none.

        Raises:
            ValueError: It was written by a later version.
        """
        found = folders.read(self.storage_filesystem, self.path_of(RECORD))
        if found is None:
            return None
        fields = json.loads(found)
        version = fields.pop("version")
        if version > _VERSION:
            raise ValueError(
                f"{self.path_of(RECORD)} has version {version}, and this Skate reads up to {_VERSION}: update Skate"
            )
        for each in fields["kept"]:
            each["name"] = each.pop("path", None) or each["name"]  # a field of its own, in older records
            each["status"] = Status(each.get("status", Status.COMMITTED))
        fields["kept"] = [Kept(**each) for each in fields["kept"]]
        return Record(**fields)

    def note(self, index: int, rank: int, metrics: dict[str, Any], time: float) -> None:
        """Add a worker's report to the history.

        Raises:
            OSError: It cannot be written now; it will be with the next.
        """
        line = json.dumps({"report": index, "rank": rank, "time": time, "metrics": metrics}, default=as_json)
        self._lines.append(line + "\n")
        if folders.is_here(self.storage_filesystem):
            folders.append(self.path_of(HISTORY), "".join(self._lines).encode())
            self._lines.clear()

    def history(self) -> list[dict[str, Any]]:
        """Return all reports of all workers, in the order in which they came."""
        found = folders.read(self.storage_filesystem, self.path_of(HISTORY)) or b""
        return [json.loads(line) for line in found.decode().splitlines(keepends=True) if line.endswith("\n")]

    def begin_history(self) -> None:
        """Go on with the history of a run that was here before; of a line that was being written, nothing is left."""
        found = folders.read(self.storage_filesystem, self.path_of(HISTORY)) or b""
        whole = found[: found.rfind(b"\n") + 1]
        if not folders.is_here(self.storage_filesystem):
            self._lines = whole.decode().splitlines(keepends=True)
        elif whole != found:
            os.truncate(self.path_of(HISTORY), len(whole))
