"""What a write that can be resumed remembers, in the folder `_skate` beside what it writes.

`job.json` says what is written, and into how many parts each source is cut. `units/000007.json` says that a unit is
done and which files it has made: with this record the unit is committed. `finished.json` says that all are. Files wait
in `waiting-…` until their unit is committed, and get their place then; where a program was killed in between, the next
one does that first. On a store of objects, where nothing can be moved, files have their place at once, and the next
program removes those that belong to no committed unit.
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
_READS_AT_ONCE = 16


@dataclass(frozen=True)
class JobRecord:
    """What a write is.

    Attributes:
        job: What names the files of the write.
        wanted: Into how many parts each source is cut.
        units: What each unit reads.
        steps: What the program does, by the names of its steps.
    """

    job: str
    wanted: list[int]
    units: list[str]
    steps: dict[str, str]
    format: int = _FORMAT


@dataclass(frozen=True)
class UnitRecord:
    """What a unit has written.

    Attributes:
        number: Which unit.
        files: Where they waited, inside the folder of records, by their paths inside the folder of the write; None for
            an object, which does not wait.
        rows: How many rows they hold.
        failed_rows: Rows for which user code failed, and that were left out.
    """

    number: int
    files: dict[str, str | None]
    rows: int
    failed_rows: int


@dataclass(frozen=True)
class Totals:
    """What a write has written, in all of its runs."""

    units: int = 0
    files: int = 0
    rows: int = 0
    failed_rows: int = 0

    @classmethod
    def of(cls, records: Iterable[UnitRecord]) -> Totals:
        """Return what units have written together."""
        all_ = list(records)
        files = sum(len(each.files) for each in all_)
        return cls(len(all_), files, sum(each.rows for each in all_), sum(each.failed_rows for each in all_))


@dataclass
class Records:
    """The folder in which a write remembers what it has done.

    Args:
        filesystem: Where the write goes.
        path: The folder of the write.
        makes_folders: Whether to make that folder if it is not there.
        name: What the folder of records is called, in there.
    """

    filesystem: pafs.FileSystem
    path: str
    makes_folders: bool = True
    name: str = FOLDER
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    def __post_init__(self) -> None:
        self.folder = posixpath.join(self.path, self.name)
        self.waiting = posixpath.join(self.folder, _WAITING + self.run)
        self._moves = not filesystems.commits_on_close(self.filesystem)
        self._committing = False

    # ------------------------------------------------------------ reading

    def job(self) -> JobRecord | None:
        """Return what is being written here; None if nobody has begun.

        Raises:
            ResumeError: The record cannot be read by this version.
        """
        found = self._get("job.json")
        if found is not None and found.get("format") != _FORMAT:
            raise ResumeError(
                f"{self.folder} was written by another version of Skate (its format is {found.get('format')!r}, and "
                f"this one knows {_FORMAT}): finish it with that one, or write to another folder"
            )
        return None if found is None else JobRecord(**found)

    def totals(self) -> Totals | None:
        """Return what has been written here; None as long as it is not finished."""
        found = self._get("finished.json")
        return None if found is None else Totals(**found)

    def units(self) -> list[UnitRecord]:
        """Return what the committed units have written."""
        names = [name for name in self.listed("units") if name.endswith(".json") and not _hidden(name)]
        with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
            found = list(pool.map(self._get, names))
        return [UnitRecord(**each) for each in found if each is not None]

    # ------------------------------------------------------------ writing

    def begin(self, job: JobRecord) -> None:
        """Note what is going to be written."""
        if self._moves:
            self.filesystem.create_dir(posixpath.join(self.folder, "units"), recursive=self.makes_folders)
        self._put("job.json", asdict(job))

    def commit(self, unit: UnitRecord) -> None:
        """Make a unit's files what they are for good: it is committed as soon as its record is there."""
        waiting = {place: name for name, place in unit.files.items() if place is not None}
        paths = [posixpath.join(self.folder, place) for place in waiting]
        missing = [info.path for info in self.filesystem.get_file_info(paths) if not info.is_file]
        if missing:
            raise SystemException(f"{missing[0]} was written and is not there: its rows would be lost")
        self.flush_folders(self.folder, waiting)
        self._committing = True
        self._put(f"units/{unit.number:06}.json", asdict(unit))
        self.move(waiting)
        self._committing = False

    def finish(self, totals: Totals) -> None:
        """Note that all units are committed; their own records are of no use any more."""
        self._put("finished.json", asdict(totals))
        self.tidy()

    def tidy(self) -> None:
        """Remove what a finished write does not need, if a killed program has left it there."""
        for name in ("units", *self.staging_folders()):
            self.delete_folder(name)

    # ------------------------------------------------------------ after a kill

    def recover(self, job: str, committed: list[UnitRecord]) -> None:
        """Give the files of committed units their place, and remove those of others."""
        if self._moves:
            rooms = self.staging_folders()
            names = {place: name for unit in committed for name, place in unit.files.items()}
            left = [place for room in rooms for place in self.listed(room) if place in names]
            self.move({place: names[place] for place in left})
            for room in rooms:
                self.delete_folder(room)
        else:
            self.remove_strays(job, committed)

    def remove_strays(self, job: str, committed: list[UnitRecord]) -> None:
        """On a store of objects, remove those that killed tasks of the write have left."""
        if self._moves:
            return
        known = {name for unit in committed for name in unit.files}
        for name in self.listed("", self.path):
            ours = job in posixpath.basename(name) and not name.startswith(f"{FOLDER}/")
            if ours and name not in known:
                self.delete_file(posixpath.join(self.path, name))

    def leave(self) -> None:
        """Remove what this run has not committed; the next one does it, if a commit was interrupted."""
        if self._moves and not self._committing:
            self.delete_folder(posixpath.basename(self.waiting))

    # ------------------------------------------------------------ files

    def move(self, waiting: dict[str, str]) -> None:
        """Give files their places, by where they waited."""
        for folder in {posixpath.dirname(name) for name in waiting.values()} - {""}:
            self.filesystem.create_dir(posixpath.join(self.path, folder), recursive=True)
        for place, name in waiting.items():
            source, target = posixpath.join(self.folder, place), posixpath.join(self.path, name)
            retrying.call(lambda s=source, t=target: self.filesystem.move(s, t), f"moving {source}")  # type: ignore[misc]  # a lambda with defaults
        self.flush_folders(self.path, waiting.values())

    def flush_folders(self, root: str, names: Iterable[str]) -> None:
        """Wait until the names of files are on the disk."""
        for folder in {posixpath.dirname(name) for name in names}:
            streams.fsync(self.filesystem, posixpath.join(root, folder))

    def _put(self, name: str, content: Any) -> None:
        """Make a record appear whole."""
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
        """Return the folders in which files of this run, and of killed ones, wait."""
        selector = pafs.FileSelector(self.folder, allow_not_found=True)
        found = retrying.call(lambda: self.filesystem.get_file_info(selector), f"listing {self.folder}")
        return [info.base_name for info in found if info.base_name.startswith(_WAITING)]

    def listed(self, name: str, root: str | None = None) -> list[str]:
        """Return the files in a folder, and in those inside it, as paths inside the folder of records."""
        root = self.folder if root is None else root
        selector = pafs.FileSelector(posixpath.join(root, name), recursive=True, allow_not_found=True)
        found = retrying.call(lambda: self.filesystem.get_file_info(selector), f"listing {selector.base_dir}")
        start = root.rstrip("/") + "/"
        return [info.path.removeprefix(start) for info in found if info.type == pafs.FileType.File]

    def delete_folder(self, name: str) -> None:
        """Remove a folder inside that of records, if it is there."""
        path = posixpath.join(self.folder, name)
        try:
            retrying.call(lambda: self.filesystem.delete_dir(path), f"removing {path}")
        except FileNotFoundError:
            pass  # nobody has written there
        except OSError as error:
            # A task that was cancelled may write for a moment longer. Its files count for nothing, and the next start,
            # or the end of the job, removes them.
            if error.errno != errno.ENOTEMPTY:
                raise

    def delete_file(self, path: str) -> None:
        """Remove a file, if it is there."""
        try:
            retrying.call(lambda: self.filesystem.delete_file(path), f"removing {path}")
        except FileNotFoundError:
            pass  # somebody else was faster


def _hidden(name: str) -> bool:
    return posixpath.basename(name).startswith(".")
