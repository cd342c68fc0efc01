"""What a program and everything it started have in memory, page by page counted once."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_PAUSE = 0.05  # seconds between two readings


@dataclass
class Footprint:
    """Readings over time: seconds since the first, and bytes."""

    seconds: list[float] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)

    @property
    def peak(self) -> int:
        """Return the highest reading."""
        return max(self.bytes, default=0)


class Watch:
    """Reads the memory of every process below this one, twenty times a second, while it is entered.

    Args:
        shared: The folder of shared memory of what is watched, apart from what it has mapped.
    """

    def __init__(self, shared: Path) -> None:
        self.footprint = Footprint()
        self._shared = shared
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Footprint:
        self._thread.start()
        return self.footprint

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        begun = time.perf_counter()
        while not self._stop.is_set():
            self.footprint.seconds.append(time.perf_counter() - begun)
            self.footprint.bytes.append(tree_bytes(self._shared))
            self._stop.wait(_PAUSE)


def tree_bytes(shared: Path) -> int:
    """Return the bytes of every process below this one, and of a folder of shared memory.

    A process counts with its PSS, but for shared memory, which is counted by file: all of its pages, once, whether
    they are mapped or not.
    """
    total = 0
    files: dict[tuple[int, int], int] = {}
    for process in psutil.Process().children(recursive=True):
        try:
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            _add_mapped_files(process.pid, files)
        except (ProcessLookupError, FileNotFoundError):
            continue  # It ended while we looked.
        total += sum(
            int(line.split()[1]) * 1024
            for line in rollup.splitlines()
            if line.startswith(("Pss_Anon:", "Pss_File:"))
        )
    for folder, _, names in os.walk(shared):
        for name in names:
            _add_file(os.path.join(folder, name), files)
    return total + sum(files.values())


def _add_mapped_files(pid: int, files: dict[tuple[int, int], int]) -> None:
    """Note the files in shared memory that a process has mapped; also those that have no name any more."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith(("/dev/shm/", "/memfd:")):
            _add_file(f"/proc/{pid}/map_files/{fields[0]}", files)


def _add_file(path: str, files: dict[tuple[int, int], int]) -> None:
    try:
        status = os.stat(path)
    except OSError:
        return  # It was deleted while we looked.
    files[status.st_dev, status.st_ino] = status.st_blocks * 512
