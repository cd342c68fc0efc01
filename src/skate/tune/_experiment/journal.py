"""The journal of an experiment: an append-only file of records, from which `Tuner.restore` rebuilds the trials.

Each line is a record: the checksum of its JSON text, then the text. A program that is killed leaves at most one
incomplete line, the last; opening the journal removes it. Compaction replaces the file atomically by one with fewer
records.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import msgspec

from skate.tune.error import TuneError

log = logging.getLogger(__name__)

Record = Mapping[str, Any]

_CHECKSUM_DIGITS = 8
_JSON = msgspec.json.Encoder()


class Journal:
    """Appends records to a file, and makes them durable in groups.

    Args:
        path: The file, which is created if it is missing.

    Raises:
        TuneError: Another program has the journal open.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = lock(path.with_suffix(".lock"), str(path.parent))
        try:
            self._file = path.open("ab")
            end = _end_of_records(path)
            if end < self._file.tell():
                log.warning("removed an incomplete record at the end of %s", path)
                self._file.truncate(end)
        except BaseException:
            self._lock.close()
            raise
        self._pending = False
        self._thread = ThreadPoolExecutor(1, "skate-journal")  # it starts with the first sync
        self._sync: Future[None] | None = None

    def append(self, record: Record) -> None:
        """Append a record; `commit` makes it durable."""
        self._file.write(_encode(record))
        self._pending = True

    def flush(self) -> None:
        """Flush all appended records to the operating system, so that they survive the end of this process."""
        self._file.flush()

    def start_commit(self) -> None:
        """Start to write all appended records to the disk, unless an earlier start has not ended.

        Raises:
            OSError: The records of the earlier start could not be written.
        """
        if self._sync is not None and not self._sync.done():
            return
        self._wait_for_sync()
        if self._pending:
            self._file.flush()
            self._pending = False
            self._sync = self._thread.submit(_sync, self._file.fileno())

    def commit(self) -> None:
        """Wait until all appended records are on disk, so that they survive a crash of the machine."""
        self._wait_for_sync()
        if self._pending:
            self._file.flush()
            _sync(self._file.fileno())
            self._pending = False

    def _wait_for_sync(self) -> None:
        sync, self._sync = self._sync, None
        if sync is not None:
            sync.result()

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self._file.tell()

    def compact(self, records: Iterable[Record]) -> None:
        """Replace all records atomically: a program that is killed leaves either the old records or the new ones."""
        self._wait_for_sync()
        new = self.path.with_suffix(".new")
        with new.open("wb") as file:
            for record in records:
                file.write(_encode(record))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)
        _sync_folder(self.path.parent)
        self._file.close()
        self._file = self.path.open("ab")
        self._pending = False

    def rotate(self) -> None:
        """Start an empty file. A file with records is kept under another name."""
        if not self.size:
            return
        self._wait_for_sync()
        self._file.close()
        number = 1
        while (old := self.path.with_name(f"{self.path.stem}-{number}{self.path.suffix}")).exists():
            number += 1
        self.path.rename(old)
        self._file = self.path.open("ab")

    def close(self) -> None:
        """Commit, and release the lock, so that other programs can open the journal."""
        try:
            self.commit()
        finally:
            self._thread.shutdown()
            self._file.close()
            self._lock.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path) -> Iterator[Record]:
    """Yield the records of a journal, in order; damaged lines are skipped with a warning.

    Raises:
        FileNotFoundError: The journal does not exist.
    """
    with path.open("rb") as file:
        yield from decode_records(file, str(path))


def decode_records(lines: Iterable[bytes], source: str) -> Iterator[Record]:
    """Yield the records of lines; damaged lines are skipped with a warning.

    Args:
        lines: The lines of a journal, of which the last may be incomplete.
        source: The journal, for the warning.
    """
    for number, line in enumerate(lines, 1):
        record = _decode(line)
        if record is not None:
            yield record
        elif line.endswith(b"\n"):
            log.warning("skipped line %d of %s: its checksum is wrong", number, source)


def _encode(record: Record) -> bytes:
    text = _JSON.encode(record)
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _decode(line: bytes) -> Record | None:
    """Return the record of a line, or None if the line is incomplete or damaged."""
    checksum, _, text = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or len(checksum) != _CHECKSUM_DIGITS:
        return None
    try:
        if int(checksum, 16) != zlib.crc32(text):
            return None
        record: Record = json.loads(text)
    except ValueError:
        return None
    return record


def _end_of_records(path: Path) -> int:
    """Return the position after the last complete line."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            begin = max(0, end - (1 << 16))
            file.seek(begin)
            newline = file.read(end - begin).rfind(b"\n")
            if newline >= 0:
                return begin + newline + 1
            end = begin
    return 0


def lock(path: Path, experiment: str) -> IO[str]:
    """Return a file that is locked until it is closed.

    Args:
        path: The file, which is created if it is missing.
        experiment: The folder of the experiment, for the error.

    Raises:
        TuneError: Another program has locked it.
    """
    file = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        owner = file.read().strip() or "unknown"
        file.close()
        raise TuneError(
            f"another program (process {owner}) runs the experiment in {experiment}: wait for it to end, stop it, or "
            "give this experiment another name with RunConfig(name=...)"
        ) from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def _sync(descriptor: int) -> None:
    getattr(os, "fdatasync", os.fsync)(descriptor)  # macOS has only fsync


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
