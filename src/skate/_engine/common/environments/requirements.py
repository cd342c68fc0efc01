"""Descriptions of requirements, including the contents of the files that they name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from skate._engine.common.environments.folders import digest_entries, digest_file, list_entries
from skate._engine.common.environments.variables import expand_variables

_INCLUDE = re.compile(r"(?:-r|-c|--requirement|--constraint)(?:\s*=\s*|\s+|(?=[^\s-]))(.+)")
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s*=\s*|\s+)(.+)")


def describe_requirements(lines: Sequence[str], folder: Path, env: Mapping[str, str]) -> list[str]:
    """Return the requirements, each local file followed by a digest of its contents.

    Equal descriptions install the same packages, as far as can be known without an index.

    Args:
        lines: Lines as in a requirements file.
        folder: The base of relative paths.
        env: Variables for ``${NAME}``.
    """
    return list(_describe(lines, folder, env, set()))


def _describe(lines: Sequence[str], folder: Path, env: Mapping[str, str], seen: set[Path]) -> Iterator[str]:
    for raw in lines:
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        if not line:
            continue
        expanded = expand_variables({"line": line}, env)["line"]
        included = _INCLUDE.fullmatch(expanded)
        if included is None:
            yield line
            yield from _describe_local(expanded, folder)
            continue
        path = _resolve(included.group(1), folder)
        yield line.split()[0]
        if path in seen:
            continue
        seen.add(path)
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            yield from _describe(text.splitlines(), path.parent, env, seen)
        else:
            yield f"missing: {path}"  # pip reports this better


def _describe_local(line: str, folder: Path) -> Iterator[str]:
    editable = _EDITABLE.fullmatch(line)
    target = editable.group(1) if editable else line
    _, separator, reference = target.partition(" @ ")
    target = (reference if separator else target).split(";")[0].strip()
    if target.startswith("file:"):
        target = unquote(urlsplit(target).path)
    elif "://" in target or not (
        os.sep in target or target.endswith((".whl", ".tar.gz", ".zip")) or target == "."
    ):
        return
    path = _resolve(re.sub(r"\[[^\]]*\]$", "", target), folder)
    if path.is_dir():
        yield digest_entries(list_entries(path))
    elif path.is_file():
        yield digest_file(path)


def _resolve(name: str, folder: Path) -> Path:
    return (folder / Path(name.strip().strip("'\"")).expanduser()).resolve()
