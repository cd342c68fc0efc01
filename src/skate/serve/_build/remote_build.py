"""Building an application in a process of its own, which has the environment that the application asks for.

What is built tells by its digest whether the code is the same as before, and knows its source files: as long as they
are untouched, it need not be built again.
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
    """An application as its program has it, before a configuration file changes options.

    Args:
        spec: What to deploy.
        digest: Stands for the contents of the program's own source files.
        sources: Those files, and when and how large each was.
    """

    spec: ApplicationSpec
    digest: str
    sources: dict[str, tuple[int, int]]

    def is_current(self) -> bool:
        """Return whether the source files are as they were."""
        return all(_stat(path) == seen for path, seen in self.sources.items())


@dataclass(frozen=True)
class BuildFailure:
    """What went wrong, as text: the error may be of a class that only the program's environment has."""

    traceback: str


def build_from_import_path(
    import_path: str, args: Mapping[str, Any], name: str, route_prefix: str | None
) -> BuildResult | BuildFailure:
    """Import an application and take it apart. A task of the controller."""
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
            continue  # it was never a file, or it is gone
        digest.update(f"{module}\0{len(content)}\0".encode())
        digest.update(content)
        sources[path] = _stat(path)
    return BuildResult(spec, digest.hexdigest(), sources)


def _own_modules() -> Iterator[tuple[str, str]]:
    """Yield the modules that are neither installed nor Skate's, and their files."""
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
