"""The local files of an experiment that is stored elsewhere, such as in S3.

The program that runs such an experiment writes to a folder on its machine and uploads what has changed. The workers
store checkpoints directly. Each local folder has a random id, and the storage records the id of the folder that was
uploaded last. A local folder with this id is at least as new as the storage, and is used to continue after a crash. Any
other local folder is out of date, because a program on another machine has continued the experiment.

The storage is consistent at every moment of an upload. The files of trials are uploaded first, then the journal, up to
the size that it had when the state of the search was read, then that state. So the state in the storage is never newer
than the journal there, and a journal may end anywhere.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import posixpath
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from skate._api import variables
from skate.air import _filesystems as filesystems
from skate.train._storage import folders
from skate.tune._experiment.folder import JOURNAL, STATE, ExperimentFolder, describe_location
from skate.tune._experiment.journal import lock
from skate.tune.error import TuneError

log = logging.getLogger("skate.tune")

WRITER = "writer.json"
_CHUNK = 8 << 20  # bytes
_PARALLEL_TRANSFERS = 8  # files, to hide the latency of object stores
_IN_STORAGE_ONLY = re.compile(r"(checkpoint|run_.+)_\d{6,}")  # folders that workers store directly
_Stamp = tuple[int, int]


def open_folder(path: str | os.PathLike[str], filesystem: Any = None) -> ExperimentFolder:
    """Return the folder of an experiment, with the files of this machine if they are not older than the storage.

    Args:
        path: A local path or a URI.
        filesystem: The filesystem of the path; determined by the path if not given.
    """
    found, within = folders.locate(path, filesystem)
    if folders.uses_local_paths(found):
        return ExperimentFolder(within)
    within = within.rstrip("/")
    staging = Staging(found, within)
    return ExperimentFolder(within, found, staging.local if staging.is_current() else None)


class Staging:
    """The files of one experiment on this machine, and their uploads.

    Args:
        filesystem: The filesystem of the experiment.
        path: Its folder there.
    """

    def __init__(self, filesystem: pafs.FileSystem, path: str) -> None:
        self.filesystem = filesystem
        self.path = path
        self.location = describe_location(filesystem, path)
        key = hashlib.sha256(f"{_describe(filesystem)} {path.strip('/')}".encode()).hexdigest()[:16]
        self.local = Path(
            os.path.abspath(variables.cache_folder()), "tune", f"{posixpath.basename(path)}-{key}"
        )
        self._id: str | None = None
        self._transferred: dict[str, _Stamp] = {}  # the stamp of each file when it was last transferred
        self._created: set[str] = set()  # folders that exist in the storage

    # ------------------------------------------------------------ the folder on this machine

    def is_current(self) -> bool:
        """Return whether the files on this machine are at least as new as those in the storage."""
        try:
            own = _id_in((self.local / WRITER).read_bytes())
        except FileNotFoundError:
            return False
        return own == self._read_writer()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the experiment against other programs on this machine.

        Raises:
            TuneError: Another program runs the experiment, or the folder cannot be created.
        """
        root = self.local.parent
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = lock(root / f"{self.local.name}.lock", self.location)
        except OSError as error:
            raise TuneError(
                f"the experiment cannot be written to {root}, from where it is uploaded: {error}. Set SKATE_CACHE_DIR "
                "to a writable folder."
            ) from error
        with file:
            yield

    def prepare(self) -> None:
        """Use the files on this machine if they are current; otherwise replace them with those of the storage."""
        if not self.is_current():
            if self.local.exists():
                log.warning(
                    "replaced %s: %s does not exist any more, or was continued on another machine.",
                    self.local,
                    self.location,
                )
                shutil.rmtree(self.local)
            self.local.mkdir(mode=0o700)
            self._download(
                info.base_name
                for info in self._list(self.path)
                if info.type == pafs.FileType.File and _is_content(info.base_name)
            )
            self._claim()
        self._id = _id_in((self.local / WRITER).read_bytes())

    def _claim(self) -> None:
        content = json.dumps({"id": uuid.uuid4().hex}).encode()
        self.filesystem.create_dir(self.path, recursive=True)
        folders.replace(self.filesystem, f"{self.path}/{WRITER}", content)
        (self.local / WRITER).write_bytes(content)

    def _read_writer(self) -> str | None:
        """Return the id of the folder that was uploaded last; None if there was none."""
        return _id_in(folders.read(self.filesystem, f"{self.path}/{WRITER}"))

    def remove(self) -> None:
        """Delete the files on this machine, which must be uploaded."""
        shutil.rmtree(self.local, ignore_errors=True)

    # ------------------------------------------------------------ downloads

    def download(self, trials: Iterable[str]) -> None:
        """Download the missing files of trials that continue. Checkpoints stay in the storage.

        Args:
            trials: The names of their folders.
        """
        self._download(
            name
            for trial in trials
            for info in self._list(f"{self.path}/{trial}", recursive=True)
            if info.type == pafs.FileType.File
            and not _is_in_storage_only(name := folders.relative(info.path, self.path))
        )

    def _list(self, path: str, *, recursive: bool = False) -> list[pafs.FileInfo]:
        found: list[pafs.FileInfo] = self.filesystem.get_file_info(
            pafs.FileSelector(path, allow_not_found=True, recursive=recursive)
        )
        return found

    def _download(self, names: Iterable[str]) -> None:
        missing = (name for name in names if not (self.local / name).exists())
        for name, error in _transfer(self._receive, missing):
            raise TuneError(f"cannot download {self.location}/{name}: {error}") from error

    def _receive(self, name: str) -> None:
        target = self.local / name
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_name(f"{target.name}.new")
        with (
            self.filesystem.open_input_stream(f"{self.path}/{name}", compression=None) as source,
            new.open("wb") as file,
        ):
            while chunk := source.read(_CHUNK):
                file.write(chunk)
        new.replace(target)
        self._transferred[name] = _stamp(target.stat())

    # ------------------------------------------------------------ uploads

    def upload(self) -> None:
        """Upload the files that have changed since the last upload.

        Raises:
            TuneError: Files could not be uploaded; the next call tries again.
            OSError: The storage cannot be reached.
        """
        self._check_writer()
        state, journal = self._read_state(), self._size_of_journal()
        failures: list[tuple[str, Exception]] = []
        changed = {
            name: stamp
            for name, stamp in self._scan(failures)
            if name not in (JOURNAL, STATE) and stamp != self._transferred.get(name)
        }
        failures += _transfer(lambda name: self._send(name, changed[name]), changed)
        last = [] if journal is None else _transfer(lambda name: self._send(name, journal), [JOURNAL])
        if state is not None and not last:
            content, stamp = state
            last = _transfer(lambda _: self._send_state(content, stamp), [STATE])
        failures += last
        if failures:
            name, error = failures[0]
            others = f", and {len(failures) - 1} other files" if len(failures) > 1 else ""
            raise TuneError(
                f"cannot upload {self.local / name} to {self.location}: {error}{others}"
            ) from error

    def _check_writer(self) -> None:
        found = self._read_writer()
        if found is None:  # the folder was deleted
            self._transferred.clear()
            self._created.clear()
            self.filesystem.create_dir(self.path, recursive=True)
            folders.replace(self.filesystem, f"{self.path}/{WRITER}", (self.local / WRITER).read_bytes())
        elif found != self._id:
            raise TuneError(
                f"a program on another machine continues the experiment in {self.location}: stop one of them"
            )

    def _read_state(self) -> tuple[bytes, _Stamp] | None:
        """Return the state of the search, if it has changed."""
        try:
            with (self.local / STATE).open("rb") as file:
                stamp = _stamp(os.fstat(file.fileno()))
                return None if stamp == self._transferred.get(STATE) else (file.read(), stamp)
        except FileNotFoundError:
            return None

    def _size_of_journal(self) -> _Stamp | None:
        """Return the time and the size of the journal, if it has changed."""
        try:
            stamp = _stamp((self.local / JOURNAL).stat())
        except FileNotFoundError:
            return None
        return None if stamp == self._transferred.get(JOURNAL) else stamp

    def _scan(self, failures: list[tuple[str, Exception]]) -> Iterator[tuple[str, _Stamp]]:
        """Yield the files on this machine, and add those that cannot be read to the failures."""
        pending = [""]
        while pending:
            folder = pending.pop()
            try:
                entries = list(os.scandir(self.local / folder))
            except FileNotFoundError:  # deleted meanwhile
                continue
            except OSError as error:
                failures.append((folder, error))
                continue
            for entry in entries:
                name = f"{folder}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{name}/")
                elif entry.is_file() and (folder or _is_content(name)):
                    with suppress(FileNotFoundError):
                        yield name, _stamp(entry.stat())

    def _send(self, name: str, stamp: _Stamp) -> None:
        """Upload a file up to the size in its stamp. Result files and journals only grow."""
        try:
            file = (self.local / name).open("rb")
        except FileNotFoundError:  # deleted meanwhile
            return
        with file:
            left = stamp[1]

            def read() -> bytes:
                nonlocal left
                chunk = file.read(min(left, _CHUNK))
                left -= len(chunk)
                return chunk

            self._write(name, iter(read, b""))
        self._transferred[name] = stamp

    def _send_state(self, content: bytes, stamp: _Stamp) -> None:
        self._write(STATE, [content])
        self._transferred[STATE] = stamp

    def _write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Replace a file in the storage, so that a reader finds either the old contents or the new ones."""
        target = f"{self.path}/{name}"
        at_once = filesystems.commits_on_close(self.filesystem)
        folder = posixpath.dirname(target)
        if not at_once and folder not in self._created:
            self.filesystem.create_dir(folder, recursive=True)
            self._created.add(folder)
        written = target if at_once else f"{target}.new"
        # Without compression=None, a .gz file would be compressed again.
        with self.filesystem.open_output_stream(written, compression=None) as stream:
            for chunk in chunks:
                stream.write(chunk)
        if not at_once:
            self.filesystem.move(written, target)


def _transfer(move: Callable[[str], None], names: Iterable[str]) -> list[tuple[str, Exception]]:
    """Call a function for each name, in several threads. Return the names that failed, with their errors."""

    def attempt(name: str) -> Exception | None:
        try:
            move(name)
        except Exception as error:  # fsspec filesystems raise errors of their libraries
            return error
        return None

    found = list(names)
    if len(found) <= 1:
        errors: Iterable[Exception | None] = map(attempt, found)
        return [(name, error) for name, error in zip(found, errors, strict=True) if error is not None]
    with ThreadPoolExecutor(_PARALLEL_TRANSFERS, thread_name_prefix="skate-transfer") as pool:
        errors = pool.map(attempt, found)
        return [(name, error) for name, error in zip(found, errors, strict=True) if error is not None]


def _is_in_storage_only(name: str) -> bool:
    return any(_IN_STORAGE_ONLY.fullmatch(part) for part in name.split("/")[1:-1])


def _is_content(name: str) -> bool:
    """Return whether to transfer a file that is directly in the experiment's folder."""
    return name != WRITER and not name.endswith((".new", ".lock"))


def _stamp(found: os.stat_result) -> _Stamp:
    return found.st_mtime_ns, found.st_size


def _id_in(content: bytes | None) -> str | None:
    return None if content is None else json.loads(content)["id"]


def _describe(filesystem: pafs.FileSystem) -> str:
    """Return a text that is the same for a filesystem in all programs, without credentials."""
    if isinstance(filesystem, pafs.SubTreeFileSystem):
        return f"{_describe(filesystem.base_fs)}:{filesystem.base_path}"
    return str(filesystem.type_name)
