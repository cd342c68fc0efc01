"""The records of a resumable write, in the folder `_skate` beside its files.

`job.json` identifies the write and the number of parts of each source. `units/000007.json` commits a unit and lists its
files. `finished.json` says that all units are committed. Files are staged in `waiting-…` until their unit is committed,
and are then moved to their final place; if a program is killed in between, the next one moves them first. An object
store cannot move files: they have their final names at once, and the next program removes the files of uncommitted
units.
"""

from __future__ import annotations

import errno
import json
import posixpath
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow.fs as pafs

from skate.air import _filesystems as filesystems
from skate.data._io import retrying, streams
from skate.data.exceptions import ResumeError, SystemException

FOLDER = "_skate"
_FORMAT = 1
_WAITING = "waiting-"
_CONCURRENT_READS = 16


@dataclass(frozen=True)
class JobRecord:
    """The identity of a write.

    Attributes:
        job: A unique name, which is part of the names of its files.
        wanted: Number of parts of each source.
        units: The identity of each unit.
        steps: The fingerprints of the steps of the program, by name.
    """

    job: str
    wanted: list[int]
    units: list[str]
    steps: dict[str, str]
    format: int = _FORMAT


@dataclass(frozen=True)
class UnitRecord:
    """The files and rows of a committed unit.

    Attributes:
        number: The number of the unit.
        files: The staging path of each file, relative to the folder of records, by its path relative to the folder of
            the write; None for an object, which is not staged.
        rows: Number of rows of the files.
        failed_rows: Rows dropped because user code failed.
    """

    number: int
    files: dict[str, str | None]
    rows: int
    failed_rows: int


@dataclass(frozen=True)
class Totals:
    """The totals of a write over all of its runs."""

    units: int = 0
    files: int = 0
    rows: int = 0
    failed_rows: int = 0

    @classmethod
    def of(cls, records: Iterable[UnitRecord]) -> Totals:
        """Return the totals of units."""
        all_ = list(records)
        files = sum(len(each.files) for each in all_)
        return cls(len(all_), files, sum(each.rows for each in all_), sum(each.failed_rows for each in all_))


@dataclass
class Records:
    """The folder of records of a write.

    Args:
        filesystem: The filesystem of the write.
        path: The folder of the write.
        makes_folders: Whether to create that folder if it is missing.
        name: The name of the folder of records inside it.
    """

    filesystem: pafs.FileSystem
    path: str
    makes_folders: bool = True
    name: str = FOLDER
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    def __post_init__(self) -> None:
        self.folder = posixpath.join(self.path, self.name)
        self.staging = posixpath.join(self.folder, _WAITING + self.run)
        self._moves = not filesystems.commits_on_close(self.filesystem)
        self._committing = False

    # ------------------------------------------------------------ reading

    def job(self) -> JobRecord | None:
        """Return the record of the write; None if it has not begun.

        Raises:
            ResumeError: Another version wrote the record.
        """
        found = self._get("job.json")
        if found is not None and found.get("format") != _FORMAT:
            raise ResumeError(
                f"{self.folder} was written by another version of Skate (its format is {found.get('format')!r}, and "
                f"this version supports {_FORMAT}): finish it with that version, or write to another folder"
            )
        return None if found is None else JobRecord(**found)

    def totals(self) -> Totals | None:
        """Return the totals of a finished write; None if it is not finished."""
        found = self._get("finished.json")
        return None if found is None else Totals(**found)

    def units(self) -> list[UnitRecord]:
        """Return the records of the committed units."""
        names = [name for name in self.list_files("units") if name.endswith(".json") and not _is_hidden(name)]
        with ThreadPoolExecutor(_CONCURRENT_READS) as pool:
            found = list(pool.map(self._get, names))
        return [UnitRecord(**each) for each in found if each is not None]

    # ------------------------------------------------------------ writing

    def begin(self, job: JobRecord) -> None:
        """Store the record of the write."""
        if self._moves:
            self.filesystem.create_dir(posixpath.join(self.folder, "units"), recursive=self.makes_folders)
        self._put("job.json", asdict(job))

    def commit(self, unit: UnitRecord) -> None:
        """Commit a unit by storing its record, and move its files to their final places."""
        waiting = {place: name for name, place in unit.files.items() if place is not None}
        paths = [posixpath.join(self.folder, place) for place in waiting]
        missing = [info.path for info in self.filesystem.get_file_info(paths) if not info.is_file]
        if missing:
            raise SystemException(f"{missing[0]} was written but is missing: its rows would be lost")
        self.flush_folders(self.folder, waiting)
        self._committing = True
        self._put(f"units/{unit.number:06}.json", asdict(unit))
        self.move(waiting)
        self._committing = False

    def finish(self, totals: Totals) -> None:
        """Record that all units are committed, and remove their records."""
        self._put("finished.json", asdict(totals))
        self.clean_up()

    def clean_up(self) -> None:
        """Remove unit records and staging folders, which a finished write does not need."""
        for name in ("units", *self.staging_folders()):
            self.delete_folder(name)

    # ------------------------------------------------------------ recovery

    def recover(self, job: str, committed: list[UnitRecord]) -> None:
        """Move staged files of committed units to their final places, and remove all others."""
        if self._moves:
            folders = self.staging_folders()
            names = {place: name for unit in committed for name, place in unit.files.items()}
            left = [place for folder in folders for place in self.list_files(folder) if place in names]
            self.move({place: names[place] for place in left})
            for folder in folders:
                self.delete_folder(folder)
        else:
            self.remove_strays(job, committed)

    def remove_strays(self, job: str, committed: list[UnitRecord]) -> None:
        """On an object store, remove the objects of uncommitted units."""
        if self._moves:
            return
        known = {name for unit in committed for name in unit.files}
        for name in self.list_files("", self.path):
            ours = job in posixpath.basename(name) and not name.startswith(f"{FOLDER}/")
            if ours and name not in known:
                self.delete_file(posixpath.join(self.path, name))

    def discard_uncommitted(self) -> None:
        """Remove the staged files of this run, unless a commit was interrupted, which the next run completes."""
        if self._moves and not self._committing:
            self.delete_folder(posixpath.basename(self.staging))

    # ------------------------------------------------------------ files

    def move(self, waiting: dict[str, str]) -> None:
        """Move staged files to their final places."""
        for folder in {posixpath.dirname(name) for name in waiting.values()} - {""}:
            self.filesystem.create_dir(posixpath.join(self.path, folder), recursive=True)
        for place, name in waiting.items():
            source, target = posixpath.join(self.folder, place), posixpath.join(self.path, name)
            retrying.call(lambda s=source, t=target: self.filesystem.move(s, t), f"moving {source}")  # type: ignore[misc]  # a lambda with defaults
        self.flush_folders(self.path, waiting.values())

    def flush_folders(self, root: str, names: Iterable[str]) -> None:
        """Flush the folders of files to disk."""
        for folder in {posixpath.dirname(name) for name in names}:
            streams.fsync(self.filesystem, posixpath.join(root, folder))

    def _put(self, name: str, content: Any) -> None:
        """Write a record atomically."""
        path = posixpath.join(self.folder, name)
        data = json.dumps(content, indent=1).encode()
        folder, file = posixpath.split(path)
        first = posixpath.join(folder, f".{file}.partial") if self._moves else path

        def write() -> None:
            with self.filesystem.open_output_stream(first) as stream:
                stream.write(data)
            streams.fsync(self.filesystem, first)
            if self._moves:
                self.filesystem.move(first, path)
                streams.fsync(self.filesystem, folder)

        retrying.call(write, f"writing {path}")

    def _get(self, name: str) -> dict[str, Any] | None:
        path = posixpath.join(self.folder, name)

        def read() -> dict[str, Any] | None:
            try:
                with self.filesystem.open_input_stream(path) as stream:
                    found: dict[str, Any] = json.loads(stream.read())
            except FileNotFoundError:
                return None
            return found

        return retrying.call(read, f"reading {path}")

    def staging_folders(self) -> list[str]:
        """Return the staging folders of this run and of killed ones."""
        selector = pafs.FileSelector(self.folder, allow_not_found=True)
        found = retrying.call(lambda: self.filesystem.get_file_info(selector), f"listing {self.folder}")
        return [info.base_name for info in found if info.base_name.startswith(_WAITING)]

    def list_files(self, name: str, root: str | None = None) -> list[str]:
        """Return the files in a folder, recursively, as paths relative to `root`, by default the folder of records."""
        root = self.folder if root is None else root
        selector = pafs.FileSelector(posixpath.join(root, name), recursive=True, allow_not_found=True)
        found = retrying.call(lambda: self.filesystem.get_file_info(selector), f"listing {selector.base_dir}")
        start = root.rstrip("/") + "/"
        return [info.path.removeprefix(start) for info in found if info.type == pafs.FileType.File]

    def delete_folder(self, name: str) -> None:
        """Remove a folder inside the folder of records, if it exists."""
        path = posixpath.join(self.folder, name)
        try:
            retrying.call(lambda: self.filesystem.delete_dir(path), f"removing {path}")
        except FileNotFoundError:
            pass  # nothing was written there
        except OSError as error:
            # A cancelled task may still be writing. The next start, or the end of the job, removes its files.
            if error.errno != errno.ENOTEMPTY:
                raise

    def delete_file(self, path: str) -> None:
        """Remove a file, if it exists."""
        try:
            retrying.call(lambda: self.filesystem.delete_file(path), f"removing {path}")
        except FileNotFoundError:
            pass  # another process removed it


def _is_hidden(name: str) -> bool:
    return posixpath.basename(name).startswith(".")
