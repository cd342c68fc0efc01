"""Folders that a process claims while it lives, and that others remove after its death.

A claim is a lock on a file inside the folder. The kernel releases it when the last process that holds it ends, and
every process that sees the file sees the lock, from any container, where process ids and paths are different. A
folder without a lock cannot be proved dead, so it is never removed.

A folder gets its name once it is claimed, and loses it before its content is deleted. So a process that is killed at
any point leaves a folder whose name shows what to do with it. An empty draft may be removed at any time: its creator,
if alive, creates another.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from skate._engine.common.session_roots import UnusableFolderError

LOCK = "lock"
DRAFT = "draft-"  # prefix of a folder without a claim
GONE = "gone-"  # prefix of a folder that is being deleted
ATTEMPTS = 100
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


def make(parent: str, name: str) -> tuple[str, int]:
    """Create a folder; return its path, and the descriptor that claims it until all copies are closed."""
    path = os.path.join(parent, name)
    for attempt in range(ATTEMPTS):
        draft = os.path.join(parent, f"{DRAFT}{attempt}-{name}")
        claim = -1
        try:
            os.mkdir(draft, 0o700)
            claim = os.open(os.path.join(draft, LOCK), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(draft, path)
        except (FileNotFoundError, BlockingIOError):  # another process mistook the draft for a dead one
            if claim >= 0:
                os.close(claim)
        except OSError as error:
            if claim >= 0:
                os.close(claim)
                remove(draft)
            if error.errno not in _NO_LOCKS:
                raise
            raise UnusableFolderError(
                f"The file system of {parent} has no file locks. Set SKATE_TMPDIR to a folder on a local disk."
            ) from error
        else:
            return path, claim
    raise FileNotFoundError(f"{path} was removed {ATTEMPTS} times while it was being created")


def is_claimed(path: str) -> bool:
    """Return whether a living process claims the folder."""
    with _try_lock(path, fcntl.LOCK_SH) as (exists, locked):
        return exists and not locked


@contextmanager
def dead(path: str) -> Iterator[bool]:
    """Yield whether the folder had a claim that has ended; meanwhile, this process holds the lock."""
    with _try_lock(path, fcntl.LOCK_EX) as (_, locked):
        yield locked


@contextmanager
def _try_lock(path: str, kind: int) -> Iterator[tuple[bool, bool]]:
    """Yield whether the folder has a lock, and whether this process got it."""
    try:
        descriptor = os.open(os.path.join(path, LOCK), os.O_RDWR | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        yield False, False
        return
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        yield True, False
    else:
        yield True, True
    finally:
        os.close(descriptor)


def remove(path: str) -> None:
    """Delete a folder whose claim has ended, or is held by this process."""
    gone = _gone_path(path)
    try:
        os.rename(path, gone)  # from here on, no process finds it or adds to it
    except FileNotFoundError:
        pass  # renamed already: help to delete it
    _delete(gone)


def _delete(path: str) -> None:
    import shutil  # slow to import, and only needed at the end

    shutil.rmtree(path, ignore_errors=True)


def is_left(path: str) -> bool:
    """Return whether the folder or a part of it exists."""
    return os.path.lexists(path) or os.path.lexists(_gone_path(path))


def _gone_path(path: str) -> str:
    parent, name = os.path.split(path)
    return os.path.join(parent, GONE + name)


def leftovers(parent: str, prefixes: tuple[str, ...]) -> Iterator[str]:
    """Yield the folders with these prefixes whose claims have ended; delete each after the caller has handled it."""
    for name in os.listdir(parent):
        path = os.path.join(parent, name)
        if name.startswith(GONE):
            _delete(path)
        elif name.startswith((DRAFT, *prefixes)):
            with dead(path) as is_dead:
                if is_dead:
                    yield path
                    remove(path)
            if name.startswith(DRAFT):
                _remove_empty(path)


def _remove_empty(path: str) -> None:
    """Remove a draft without a claim: its creator died, or will create another."""
    try:
        os.rmdir(path)
    except OSError:
        return  # claimed meanwhile, or removed
