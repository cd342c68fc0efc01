"""Finds the examples of Ray's documentation in a checkout of Ray's sources."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tests.compat.ray_documentation.pages import Block, blocks_of, included_files

FOLDERS = {"core": "ray-core", "data": "data", "train": "train", "serve": "serve"}  # below doc/source
PAGE_SUFFIXES = (".rst", ".md")


@dataclass(frozen=True)
class Page:
    """A page with blocks of code, which are one program."""

    area: str
    name: str
    blocks: list[Block]


@dataclass(frozen=True)
class File:
    """A Python file that pages show; it is one example."""

    area: str
    name: str
    path: Path


def find_examples(sources: Path, area: str) -> list[Page | File]:
    """Return the programs of an area: its pages, then the files that they include, each once.

    A file that lies in the folder of another area belongs to that area.
    """
    documentation = sources / "doc" / "source"
    pages: list[Page | File] = []
    files: dict[str, File] = {}
    for folder in FOLDERS.values():
        for path in sorted((documentation / folder).rglob("*")):
            if path.suffix not in PAGE_SUFFIXES:
                continue
            text = path.read_text()
            name = path.relative_to(documentation).as_posix()
            blocks = blocks_of(text)
            if blocks and area_of(name) == area:
                pages.append(Page(area, name, blocks))
            for written in included_files(text):
                included = resolve(written, path, documentation)
                where = name_of(included, documentation)
                if where not in files and (area_of(where) or area_of(name)) == area and included.exists():
                    files[where] = File(area, where, included)
    return [*pages, *sorted(files.values(), key=lambda file: file.name)]


def name_of(path: Path, documentation: Path) -> str:
    """Return the path of a file below the documentation, or below the sources if it is elsewhere in them."""
    below = documentation if path.is_relative_to(documentation) else documentation.parents[1]
    return os.path.relpath(path, below)


def resolve(written: str, page: Path, documentation: Path) -> Path:
    """Return the file that a page includes; a path that starts with a slash starts at the documentation."""
    start = documentation if written.startswith("/") else page.parent
    return Path(os.path.normpath(start / written.lstrip("/")))


def area_of(name: str) -> str | None:
    """Return the area whose folder holds a page or a file, by its path below the documentation."""
    return next((area for area, folder in FOLDERS.items() if name.startswith(f"{folder}/")), None)
