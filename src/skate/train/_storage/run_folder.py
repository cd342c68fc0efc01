"""The folder of a run: its checkpoints, the history of its metrics, and the record from which it resumes."""

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
from skate.air._json import as_json
from skate.train._failures.errors import StorageFullError
from skate.train._reports.report_ledger import KeptCheckpoint, Status
from skate.train._storage import folders

RUN_FILE = "run.json"
HISTORY_FILE = "metrics.jsonl"
_VERSION = 1
_MIN_FREE_BYTES = 64 << 10  # when a run starts, for its record and its history
_CHECKPOINT = re.compile(r"checkpoint_(\d{6,})")  # Skate's names; other folders are the user's


@dataclass
class RunRecord:
    """The persistent state of a run.

    Attributes:
        run_id: A unique id of the run.
        status: "running", "finished", "failed" or "interrupted".
        next_index: The number of the next report.
        kept: The kept checkpoints.
        metrics: The last report.
        config: The argument of the training function.
        failures: How many attempts have failed.
        error: The text of the error that ended the run.
        starts: The number of the first report of each attempt.
        score: The metric by which checkpoints are kept and sorted; None for their age.
        order: Whether the highest ("max") or the lowest ("min") score is best.
        first_checkpoint: The number of the first checkpoint in the folder of a trial; None without a trial.
    """

    run_id: str
    status: str = "running"
    next_index: int = 0
    kept: list[KeptCheckpoint] = field(default_factory=list)
    metrics: dict[str, Any] | None = None
    config: Any = None
    failures: int = 0
    error: str | None = None
    starts: list[int] = field(default_factory=list)
    score: str | None = None
    order: str = "max"
    first_checkpoint: int | None = None


class Storage:
    """The folder of one run.

    Args:
        storage_path: The folder of all runs.
        name: The run's name.
        filesystem: The filesystem of the path; determined by the path if not given.
        first_checkpoint: For a run in a trial of Tune, the number of the first checkpoint. `storage_path` is then the
            folder of the trial, and contains the checkpoints of all its runs. None for a run of its own, whose folder
            contains its checkpoints.
    """

    is_primary = True  # whether this process writes the record and the history, not only parts of checkpoints

    def __init__(
        self, storage_path: str, name: str, filesystem: Any = None, first_checkpoint: int | None = None
    ) -> None:
        self.storage_filesystem, self.storage_fs_path = filesystems.resolve(storage_path, filesystem)
        self.experiment_dir_name = name
        self.first_checkpoint = first_checkpoint
        self._lines: list[str] = []

    @property
    def experiment_fs_path(self) -> str:
        """The run's folder."""
        return posixpath.join(self.storage_fs_path, self.experiment_dir_name)

    def path_of(self, name: str) -> str:
        """Return the path of a name in the run's folder."""
        return posixpath.join(self.experiment_fs_path, name)

    @property
    def checkpoints_fs_path(self) -> str:
        """The folder of the checkpoints."""
        return self.experiment_fs_path if self.first_checkpoint is None else self.storage_fs_path

    def build_checkpoint_path_from_name(self, checkpoint_name: str) -> str:
        """Return the path of a checkpoint, also for a worker that stores it without an upload."""
        return posixpath.join(self.checkpoints_fs_path, checkpoint_name)

    def prepare(self) -> None:
        """Create the folder, and check that it is writable before the training starts.

        Raises:
            StorageFullError: The disk has no space for the run's record; also an OSError.
            OSError: The folder is not writable; the error names the folder and the reason.
        """
        probe = self.path_of(f".writable-{uuid.uuid4().hex}")
        try:
            with folders.raise_storage_full(
                f"the run cannot be stored in {self.experiment_fs_path}: the disk is full. Free some space and call "
                "fit() again: it resumes from the latest checkpoint, which is complete"
            ):
                self.storage_filesystem.create_dir(self.experiment_fs_path, recursive=True)
                try:
                    folders.write(self.storage_filesystem, probe, bytes(_MIN_FREE_BYTES))
                finally:
                    with contextlib.suppress(OSError):
                        self.storage_filesystem.delete_file(probe)
        except StorageFullError:
            raise
        except OSError as error:
            raise OSError(
                f"the run cannot be stored in {self.experiment_fs_path}: {error}. Give RunConfig a `storage_path` that "
                "is writable from here and from all workers."
            ) from error

    # ------------------------------------------------------------ checkpoints

    def checkpoint_name(self, index: int) -> str:
        """Return the name of the checkpoint of a report, unless the user has given it one."""
        return f"checkpoint_{(self.first_checkpoint or 0) + index:06d}"

    def store(
        self, name: str, filesystem: pafs.FileSystem, folder: str, moved: Callable[[int], None]
    ) -> None:
        """Copy a folder to a checkpoint with a name; `moved` is called with the bytes just copied."""
        target = self.build_checkpoint_path_from_name(name)
        self.storage_filesystem.create_dir(target, recursive=True)
        folders.copy(filesystem, folder, self.storage_filesystem, target, moved)

    def name_of(self, filesystem: pafs.FileSystem, folder: str) -> str | None:
        """Return the path of a folder relative to that of the checkpoints; None if it is elsewhere."""
        if filesystem != self.storage_filesystem:
            return None
        found = folders.real_path(filesystem, folder)
        if found == folders.real_path(filesystem, self.experiment_fs_path):
            return None
        name = posixpath.relpath(found, folders.real_path(filesystem, self.checkpoints_fs_path))
        return None if name in (".", "..") or name.startswith("../") else name

    def drop_incomplete(self, kept: Iterable[str]) -> None:
        """Delete checkpoints that were incomplete when an earlier program was killed.

        In the folder of a trial, checkpoints with lower numbers than that of the first belong to earlier runs.
        """
        known = set(kept)
        found = self.storage_filesystem.get_file_info(
            pafs.FileSelector(self.checkpoints_fs_path, allow_not_found=True)
        )
        numbered = [_CHECKPOINT.fullmatch(posixpath.basename(info.path.rstrip("/"))) for info in found]
        first = self.first_checkpoint or 0
        self.drop(each[0] for each in numbered if each and int(each[1]) >= first and each[0] not in known)

    def drop(self, names: Iterable[str]) -> None:
        """Delete checkpoints in their folder; checkpoints elsewhere are the user's."""
        for name in names:
            if posixpath.isabs(name):
                continue
            folders.delete(self.storage_filesystem, self.build_checkpoint_path_from_name(name))

    # ------------------------------------------------------------ record and metrics

    def write(self, record: RunRecord) -> None:
        """Write the record."""
        text = json.dumps({"version": _VERSION, **asdict(record)}, default=repr, indent=1)
        folders.write(self.storage_filesystem, self.path_of(RUN_FILE), text.encode())
        if self._lines and not folders.uses_local_paths(self.storage_filesystem):
            # An object store cannot append: write the whole history with each record.
            folders.write(self.storage_filesystem, self.path_of(HISTORY_FILE), "".join(self._lines).encode())

    def read(self) -> RunRecord | None:
        """Return the record of the run; None if it has none.

        Raises:
            ValueError: A later version of Skate has written it.
        """
        found = folders.read(self.storage_filesystem, self.path_of(RUN_FILE))
        if found is None:
            return None
        fields = json.loads(found)
        version = fields.pop("version")
        if version > _VERSION:
            raise ValueError(
                f"{self.path_of(RUN_FILE)} has version {version}, and this version of Skate reads up to {_VERSION}: "
                "update Skate"
            )
        for each in fields["kept"]:
            each["name"] = each.pop("path", None) or each["name"]  # a separate field in older records
            each["status"] = Status(each.get("status", Status.COMMITTED))
        fields["kept"] = [KeptCheckpoint(**each) for each in fields["kept"]]
        return RunRecord(**fields)

    def append_history(self, index: int, rank: int, metrics: dict[str, Any], time: float) -> None:
        """Append a worker's report to the history.

        Raises:
            OSError: The write failed; the next call retries it.
        """
        line = json.dumps({"report": index, "rank": rank, "time": time, "metrics": metrics}, default=as_json)
        self._lines.append(line + "\n")
        if folders.uses_local_paths(self.storage_filesystem):
            folders.append(self.path_of(HISTORY_FILE), "".join(self._lines).encode())
            self._lines.clear()

    def history(self) -> list[dict[str, Any]]:
        """Return all reports of all workers, in order of arrival."""
        found = folders.read(self.storage_filesystem, self.path_of(HISTORY_FILE)) or b""
        return [json.loads(line) for line in found.decode().splitlines(keepends=True) if line.endswith("\n")]

    def resume_history(self) -> None:
        """Continue the history of an earlier run, without its last line if that is incomplete."""
        found = folders.read(self.storage_filesystem, self.path_of(HISTORY_FILE)) or b""
        whole = found[: found.rfind(b"\n") + 1]
        if not folders.uses_local_paths(self.storage_filesystem):
            self._lines = whole.decode().splitlines(keepends=True)
        elif whole != found:
            os.truncate(self.path_of(HISTORY_FILE), len(whole))
