"""The files of a directory that belong to a package, and a digest of all of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from skate._engine.common.environments.ignore import IgnoreRules

DEFAULT_EXCLUDES = (".git", ".venv", "venv", "__pycache__")
# Ray's names, so that scripts that set them keep working.
DEFAULT_EXCLUDES_VARIABLE = "RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES"
IGNORE_GITIGNORE_VARIABLE = "RAY_RUNTIME_ENV_IGNORE_GITIGNORE"

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Entry:
    """A file, or an empty directory, under its name in the package."""

    name: str
    path: Path
    is_directory: bool

    @property
    def is_executable(self) -> bool:
        """Whether its owner may execute it; a package keeps no other part of the mode."""
        return not self.is_directory and bool(self.path.stat().st_mode & 0o100)


def default_excludes() -> list[str]:
    """Return the patterns that are excluded by default."""
    override = os.environ.get(DEFAULT_EXCLUDES_VARIABLE)
    if override is None:
        return list(DEFAULT_EXCLUDES)
    return [pattern.strip() for pattern in override.split(",") if pattern.strip()]


def list_entries(root: Path, excludes: Sequence[str] = (), *, prefix: str = "") -> list[Entry]:
    """List the entries of a directory's package, sorted by name.

    The default excludes, the given ones, and patterns of ``.gitignore`` and ``.rayignore`` files in any directory are
    left out. Links are followed; only files and directories are included.

    Args:
        root: The directory.
        excludes: Patterns as in ``.gitignore``, relative to ``root``.
        prefix: Directory to put everything under in the package.
    """
    rules = IgnoreRules([*default_excludes(), *excludes])
    entries = _walk(root, root, [(root, rules)], frozenset({root.resolve()}))
    named = (Entry(f"{prefix}/{e.name}" if prefix else e.name, e.path, e.is_directory) for e in entries)
    return sorted(named, key=lambda entry: entry.name)


def _walk(
    root: Path, directory: Path, rules: list[tuple[Path, IgnoreRules]], above: frozenset[Path]
) -> Iterator[Entry]:
    rules = [*rules, *((directory, found) for found in _rules_in(directory))]
    empty = True
    for child in sorted(directory.iterdir()):
        empty = False
        is_directory = child.is_dir()
        if any(
            found.ignores(child.relative_to(base).as_posix(), is_directory=is_directory)
            for base, found in rules
        ):
            continue
        if is_directory:
            target = child.resolve()
            if target not in above:  # A link to an enclosing directory would never end.
                yield from _walk(root, child, rules, above | {target})
        elif child.is_file():
            yield Entry(child.relative_to(root).as_posix(), child, is_directory=False)
    if empty and directory != root:
        yield Entry(directory.relative_to(root).as_posix(), directory, is_directory=True)


def _rules_in(directory: Path) -> Iterator[IgnoreRules]:
    names = [".rayignore"]
    if os.environ.get(IGNORE_GITIGNORE_VARIABLE, "0") in ("", "0"):
        names.append(".gitignore")
    for name in names:
        file = directory / name
        if file.is_file():
            yield IgnoreRules(file.read_text(encoding="utf-8", errors="replace").splitlines())


def digest_entries(entries: Iterable[Entry]) -> str:
    """Return a digest of the names, contents and execute permissions of files."""
    digest = hashlib.sha256()
    for entry in entries:
        kind = "d" if entry.is_directory else "x" if entry.is_executable else "f"
        name = entry.name.encode("utf-8", "surrogateescape")
        # Lengths separate names from contents.
        digest.update(f"{kind}{len(name)}:".encode() + name)
        if not entry.is_directory:
            digest.update(digest_file(entry.path).encode())
    return digest.hexdigest()[:40]


def digest_file(path: Path) -> str:
    """Return a digest of the contents of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()[:40]


def digest_text(text: str) -> str:
    """Return a digest of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]
