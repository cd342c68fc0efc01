"""Packages of code: named by their contents when packed, unpacked once where they are used.

``pack`` runs in the driver and replaces the local paths of a job's environment by ``skate://`` URIs; the files are a
snapshot from then on. ``working_directory`` and ``module_directory`` turn any path or URI into a directory in the
cache.
"""

from __future__ import annotations

import shutil
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from skate._base.errors import RuntimeEnvSetupError
from skate._engine.common.environments import archives
from skate._engine.common.environments.cache import Cache, remove
from skate._engine.common.environments.commands import Deadline, run_command
from skate._engine.common.environments.folders import (
    Entry,
    digest_entries,
    digest_file,
    digest_text,
    list_entries,
)
from skate._engine.common.environments.hooks import export_setup_hook

SCHEME = "skate://"


def pack(runtime_env: Mapping[str, Any], cache_dir: Path) -> dict[str, Any]:
    """Return the environment with every local file replaced by a URI that is named after its contents.

    Args:
        runtime_env: A validated environment.
        cache_dir: The folder of packages.

    Raises:
        RuntimeEnvSetupError: A file cannot be read, or the setup hook cannot be pickled.
    """
    cache = Cache(cache_dir)
    packed = dict(runtime_env)
    excludes = tuple(packed.pop("excludes", ()))
    try:
        if _is_local(packed.get("working_dir")):
            packed["working_dir"] = pack_path(Path(packed["working_dir"]), cache, excludes, parent=False)
        if "py_modules" in packed:
            packed["py_modules"] = [
                pack_path(Path(item), cache, excludes, parent=True) if _is_local(item) else item
                for item in packed["py_modules"]
            ]
    except OSError as error:
        raise RuntimeEnvSetupError(f"Could not pack the files of the runtime_env: {error}") from error
    if "worker_process_setup_hook" in packed:
        packed["worker_process_setup_hook"] = export_setup_hook(packed["worker_process_setup_hook"])
    return packed


def _is_local(item: Any) -> bool:
    return isinstance(item, str) and bool(item) and "://" not in item


def pack_path(path: Path, cache: Cache, excludes: Sequence[str] = (), *, parent: bool) -> str:
    """Put a directory or file into the cache and return its URI.

    Args:
        path: A directory, a module, a wheel or an archive.
        cache: The cache.
        excludes: Patterns of files to leave out of a directory.
        parent: Whether the directory's own name is part of the package, as a module requires.
    """
    path = path.expanduser().resolve()
    if path.is_dir() or path.suffix == ".py":
        if path.is_dir():
            entries = list_entries(path, excludes, prefix=path.name if parent else "")
        else:
            entries = [Entry(path.name, path, is_directory=False)]
        name = f"{path.stem if path.suffix == '.py' else path.name}.zip"
        key = digest_entries(entries)

        def build(target: Path) -> None:
            target.mkdir()
            archives.write_zip(entries, target / name)

    else:
        name = path.name
        key = digest_text(f"{name}:{digest_file(path)}")

        def build(target: Path) -> None:
            target.mkdir()
            shutil.copyfile(path, target / name)

    folder = cache.get_or_build("packages", key, build)
    # Directories with equal contents share a package, whatever their names.
    return f"{SCHEME}{key}/{next(folder.iterdir()).name}"


def find_package(uri: str, cache_dir: Path) -> Path | None:
    """Return the file of a package in the cache, or None for the URI of anything else."""
    if not uri.startswith(SCHEME):
        return None
    key, _, name = uri.removeprefix(SCHEME).partition("/")
    folder = Cache(cache_dir).find("packages", key)
    return None if folder is None or not name else folder / name


def working_directory(location: str, cache: Cache, excludes: Sequence[str] = ()) -> Path:
    """Return a directory with the unpacked contents of a path or URI."""
    if _is_local(location):
        location = pack_path(Path(location), cache, excludes, parent=False)

    def build(target: Path) -> None:
        with _Fetched(location, cache) as archive:
            archives.unpack(archive, target)
        if not location.startswith(SCHEME):
            _lift_top_directory(target)

    return cache.get_or_build("directories", _key(location, "working_dir"), build)


def copy_for_session(directory: Path, session_dir: Path) -> Path:
    """Return the copy of a cached directory that belongs to one session."""

    def build(target: Path) -> None:
        shutil.copytree(directory, target, symlinks=True)

    return Cache(session_dir).get_or_build("working_dirs", directory.name, build)


def module_directory(
    location: str,
    cache: Cache,
    *,
    env: Mapping[str, str],
    deadline: Deadline,
    excludes: Sequence[str] = (),
) -> Path:
    """Return a directory from which the module, package or wheel at a path or URI is importable."""
    if _is_local(location):
        location = pack_path(Path(location), cache, excludes, parent=True)

    def build(target: Path) -> None:
        with _Fetched(location, cache) as archive:
            if archive.suffix == ".whl":
                _install_wheel(archive, target, env, deadline)
                return
            archives.unpack(archive, target)
        if not location.startswith(SCHEME):
            top = archives.single_top_directory(target)
            # A single package is importable itself; another single folder only wraps the contents.
            if top is not None and not (top / "__init__.py").exists():
                _lift_top_directory(target)

    return cache.get_or_build("directories", _key(location, "py_module"), build)


def _key(location: str, use: str) -> str:
    if location.startswith("file://"):
        # Local contents may change under the same name, unlike those in a store.
        path = archives.local_path(location)
        if not path.is_file():
            raise RuntimeEnvSetupError(f"{location} does not exist: no file {path}.")
        return digest_text(f"{use}:{location}:{digest_file(path)}")
    return digest_text(f"{use}:{location}")


class _Fetched:
    """The archive at a URI, as a local file for the length of a `with` block."""

    def __init__(self, location: str, cache: Cache) -> None:
        self._location = location
        self._cache = cache
        self._temporary: Path | None = None

    def __enter__(self) -> Path:
        location = self._location
        if location.startswith(SCHEME):
            file = find_package(location, self._cache.root)
            if file is None or not file.is_file():
                raise RuntimeEnvSetupError(
                    f"The package {location} is not in {self._cache.root}. Start the job again to pack its files "
                    "again."
                )
            return file
        if location.startswith("file://"):
            return archives.local_path(location)
        folder = self._cache.root / "downloads"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # The file name matters: it shows the kind of archive, and pip reads versions from it. The caller holds the
        # lock of the entry that is built from this URI.
        self._temporary = folder / digest_text(location)
        remove(self._temporary)
        self._temporary.mkdir()
        file = self._temporary / location.rsplit("/", 1)[-1]
        try:
            archives.download(location, file)
        except BaseException:
            remove(self._temporary)
            raise
        return file

    def __exit__(self, *exc_info: object) -> None:
        if self._temporary is not None:
            remove(self._temporary)


def _lift_top_directory(folder: Path) -> None:
    """Replace a directory by the only directory in it, as archives of repositories require."""
    top = archives.single_top_directory(folder)
    if top is None:
        return
    inner = folder.with_name(folder.name + ".inner")
    top.rename(inner)
    remove(folder)
    inner.rename(folder)


def _install_wheel(wheel: Path, target: Path, env: Mapping[str, str], deadline: Deadline) -> None:
    try:
        with zipfile.ZipFile(wheel) as file:
            names = file.namelist()
            metadata = [name for name in names if name.endswith(".dist-info/METADATA")]
            text = file.read(metadata[0]).decode("utf-8", "replace") if metadata else ""
    except zipfile.BadZipFile as error:
        raise RuntimeEnvSetupError(f"{wheel.name} is not a wheel: {error}") from error
    if "Requires-Dist:" not in text and not any(".data/" in name for name in names):
        # Most wheels in runtime environments only contain code; pip would unpack them more slowly.
        archives.unpack(wheel, target)
        return
    # pip would look for conflicts in the base environment, which takes seconds.
    options = ["--disable-pip-version-check", "--no-input", "--no-warn-conflicts"]
    run_command(
        [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(wheel)],
        what=f"Installing {wheel.name}",
        deadline=deadline,
        env=env,
    )
