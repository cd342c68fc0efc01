"""The cache of packages and installed environments, which persists between runs."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from skate._base import variables


def default_cache_dir() -> Path:
    """Return the folder for runtime environments in this user's cache folder."""
    return Path(variables.cache_folder(), "runtime_env")


class Cache:
    """Entries under ``kind/key``, each built once and visible only when complete."""

    def __init__(self, root: Path) -> None:
        # Absolute, because processes with other working directories get these paths.
        self.root = Path(os.path.abspath(root))

    def path(self, kind: str, key: str) -> Path:
        """Return the path of an entry, whether it exists or not."""
        return self.root / kind / key

    def find(self, kind: str, key: str) -> Path | None:
        """Return a complete entry, marked as used now, or None."""
        path = self.path(kind, key)
        if not path.exists():
            return None
        # Follows a link: `prune` checks the target.
        os.utime(path)
        return path.resolve() if path.is_symlink() else path

    def get_or_build(
        self, kind: str, key: str, build: Callable[[Path], None], *, movable: bool = True
    ) -> Path:
        """Return an entry; build it if it does not exist.

        Builders of the same entry wait for one another, across threads and processes. A failed build leaves nothing.

        Args:
            kind: Group of entries.
            key: Name of the entry, which must identify its contents.
            build: Creates a file or directory at the path that it is called with.
            movable: Whether the result may be renamed afterwards. A virtual environment may not, because its scripts
                contain its path. It stays where it was built, and the entry is a link to it.
        """
        found = self.find(kind, key)
        if found is not None:
            return found
        with self.lock(kind, key):
            found = self.find(kind, key)
            if found is not None:
                return found
            return self._build(self.path(kind, key), build, movable=movable)

    def _build(self, path: Path, build: Callable[[Path], None], *, movable: bool) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # With the lock held, leftovers are from builders that died.
        for leftover in path.parent.glob(f"{path.name}+*"):
            remove(leftover)
        place = path.with_name(f"{path.name}+{uuid.uuid4().hex[:8]}")
        try:
            build(place)
            if movable:
                os.rename(place, path)
                return path
            link = place.with_name(place.name + ".link")
            link.symlink_to(place.name)
            # A dangling link counts as absent, and is replaced.
            os.rename(link, path)
        except BaseException:
            remove(place)
            raise
        return place

    @contextmanager
    def lock(self, kind: str, key: str) -> Iterator[None]:
        """Hold the right to build an entry."""
        folder = self.root / "locks"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder / f"{kind}-{key}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            try:
                yield
            finally:
                # Explicitly, because a forked process may hold the same descriptor open.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)

    def prune(self, *, unused_for_days: float = 30) -> list[Path]:
        """Remove entries that were not used for a while, and return them."""
        oldest = time.time() - unused_for_days * 86400
        removed = []
        for path in sorted(self.root.glob("*/*")):
            if path.parent.name == "locks" or "+" in path.name:
                continue
            with self.lock(path.parent.name, path.name):
                target = path.resolve()
                if not target.exists() or target.stat().st_mtime < oldest:
                    path.unlink() if path.is_symlink() else remove(path)
                    remove(target)
                    removed.append(path)
        return removed


def remove(path: Path) -> None:
    """Remove a file or directory tree, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
