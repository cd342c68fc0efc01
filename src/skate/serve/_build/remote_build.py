"""Builds of applications in a separate process, which has the runtime environment of the application.

A result contains a digest of the code, and the source files it depends on. It stays valid while these are unchanged.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from skate.serve._build.spec import ApplicationSpec

__all__ = ["BuildFailure", "BuildResult", "build_from_import_path"]


@dataclass(frozen=True)
class BuildResult:
    """A built application, before a configuration file overrides options.

    Args:
        spec: The specification.
        digest: The digest of the program's own source files.
        sources: The modification time and size of each source file.
    """

    spec: ApplicationSpec
    digest: str
    sources: dict[str, tuple[int, int]]

    def is_current(self) -> bool:
        """Return whether the source files are unchanged."""
        return all(_stat(path) == seen for path, seen in self.sources.items())


@dataclass(frozen=True)
class BuildFailure:
    """The traceback of a failed build, as text: the exception's class may exist in the program's environment only."""

    traceback: str


def build_from_import_path(
    import_path: str, args: Mapping[str, Any], name: str, route_prefix: str | None
) -> BuildResult | BuildFailure:
    """Import and build an application. Runs as a task of the controller."""
    from skate.serve._build.builder import build
    from skate.serve._build.importing import import_application

    try:
        spec = build(import_application(import_path, args), name, route_prefix)
    except Exception:
        return BuildFailure(traceback.format_exc())
    digest, sources = hashlib.sha256(), {}
    for module, path in sorted(_own_modules()):
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError:
            continue  # not a file, or deleted
        digest.update(f"{module}\0{len(content)}\0".encode())
        digest.update(content)
        sources[path] = _stat(path)
    return BuildResult(spec, digest.hexdigest(), sources)


def _own_modules() -> Iterator[tuple[str, str]]:
    """Yield the names and files of imported modules that are neither installed nor part of Skate."""
    installed = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    skate_itself = os.path.dirname(os.path.abspath(sys.modules["skate"].__file__ or ""))
    others = tuple(f"{folder}{os.sep}" for folder in (*installed, skate_itself))
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and not os.path.abspath(path).startswith(others):
            yield name, os.path.abspath(path)


def _stat(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, -1
    return found.st_mtime_ns, found.st_size
