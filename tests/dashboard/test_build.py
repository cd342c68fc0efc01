"""The committed build of the page."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "dashboard"
STATIC = ROOT / "src/skate/dashboard/static"
# As in dashboard/digest.mjs.
FILES = ("index.html", "package-lock.json", "package.json", "tsconfig.json", "vite.config.ts")
MOST_BYTES = 1_500_000


def digest_of_sources() -> str:
    paths = [SOURCES / name for name in FILES] + [
        path for path in (SOURCES / "src").rglob("*") if path.is_file()
    ]
    digest = hashlib.sha256()
    for name in sorted(path.relative_to(SOURCES).as_posix() for path in paths):
        content = (SOURCES / name).read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def test_the_build_was_made_from_the_sources() -> None:
    built = json.loads((STATIC / "build.json").read_text(encoding="utf-8"))
    assert built["sources"] == digest_of_sources(), (
        "the built page is stale: run make dashboard, and commit the result"
    )


def test_every_file_of_the_build_is_used() -> None:
    files = {path.name: path for path in (STATIC / "assets").iterdir()}
    seen = set[str]()
    found = re.findall(r"assets/([\w.-]+)", (STATIC / "index.html").read_text(encoding="utf-8"))
    while found:
        name = found.pop()
        if name in seen:
            continue
        seen.add(name)
        if name.endswith(".js"):
            found += re.findall(
                r"[\"'`](?:\./|assets/)([\w.-]+)[\"'`]", files[name].read_text(encoding="utf-8")
            )
    assert seen == set(files)


def test_the_build_loads_nothing_from_elsewhere() -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"(?:src|href)=\"(?!/assets/)[^\"]*", page) == []


def test_the_build_is_small() -> None:
    assert sum(path.stat().st_size for path in STATIC.rglob("*") if path.is_file()) < MOST_BYTES


def test_the_lock_file_names_no_registry() -> None:
    lock = json.loads((SOURCES / "package-lock.json").read_text(encoding="utf-8"))
    assert [name for name, package in lock["packages"].items() if "resolved" in package] == []
