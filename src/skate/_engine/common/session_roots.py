"""The private folders of a user: one for the files of sessions, one for their shared memory."""

from __future__ import annotations

import os
import stat

from skate._base import variables
from skate._engine.common.platform import system

SHM = system.SHARED_MEMORY  # "" if there is none
SPARE_NAMES = 9  # tried in turn if another user has taken the usual name


class UnusableFolderError(OSError):
    """A folder cannot hold the files or the shared memory of sessions."""


def root(chosen: str | None = None) -> str:
    """Return the folder of this user's sessions; create it if necessary.

    Args:
        chosen: The folder that contains it, from `init(_temp_dir=...)`; by default SKATE_TMPDIR, TMPDIR or /tmp.

    Raises:
        UnusableFolderError: The folder cannot be created, or other users have taken all its names.
    """
    if chosen is not None:
        return _private_folder(chosen, "_temp_dir")
    found = variables.find("TMPDIR")
    variable, named = found or ("SKATE_TMPDIR", "")
    base = named or os.environ.get("TMPDIR") or "/tmp"
    if not named and not _is_usable(base):
        import tempfile  # finds other temporary folders, but is slow to import

        try:
            base = tempfile.gettempdir()
        except FileNotFoundError as error:
            raise UnusableFolderError(
                f"{error.strerror or error}. Set SKATE_TMPDIR to a folder that you can write to."
            ) from error
    return _private_folder(base, variable)


def shm_root() -> str:
    """Return the folder for shared memory: in SKATE_SHMDIR or /dev/shm, or `root()` where there is none.

    Raises:
        UnusableFolderError: The folder cannot be created, or other users have taken all its names.
    """
    named = os.environ.get("SKATE_SHMDIR")
    if not named and not _is_usable(SHM):
        return root()
    return _private_folder(named or SHM, "SKATE_SHMDIR")


def _is_usable(base: str) -> bool:
    return os.path.isdir(base) and os.access(base, os.W_OK | os.X_OK)


def _private_folder(base: str, variable: str) -> str:
    """Return a folder below `base` that only this user can enter; `variable` can name another base."""
    base = os.path.abspath(base)  # the node and its workers may have another working directory
    remedy = f"Set {variable} to a folder that you can write to."
    usual = os.path.join(base, f"skate-{os.getuid()}")
    try:
        if not os.path.isdir(base):
            _make_base(base)
        for path in (usual, *(f"{usual}-{number}" for number in range(1, SPARE_NAMES + 1))):
            if _make_private(path):
                return path
    except OSError as error:
        raise UnusableFolderError(f"Skate cannot use {base}: {error.strerror or error}. {remedy}") from error
    raise UnusableFolderError(
        f"{usual} and {SPARE_NAMES} other names belong to other users or are not folders. {remedy}"
    )


def _make_base(base: str) -> None:
    try:
        os.makedirs(base, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError("it is not a folder") from None


def _make_private(path: str) -> bool:
    """Create a folder unless it exists; return whether it belongs to this user alone."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    else:
        return True
    try:
        # A link of this user may lead elsewhere; one of another user could lead anywhere.
        entry, folder = os.lstat(path), os.stat(path)
    except FileNotFoundError:
        return False  # a dangling link
    if {entry.st_uid, folder.st_uid} != {os.getuid()} or not stat.S_ISDIR(folder.st_mode):
        return False
    if folder.st_mode & 0o077:
        os.chmod(path, 0o700)
    return True
