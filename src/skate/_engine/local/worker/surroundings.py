"""The surroundings of a worker's code: import path, environment variables, working directory and arguments of its job.

What a module does when it is imported may depend on them.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from skate._engine.local.session.descendants import SESSION

BREAKPOINT_HOOK = "skate.util.rpdb.set_trace"  # called by `breakpoint()`, because a worker has no terminal

Snapshot = tuple[dict[bytes, bytes], list[str], str]

_adopted: Snapshot | None = None


def adopt(request: dict[str, Any]) -> None:
    """Take over the surroundings in a request to start a worker, unless the process was forked with them."""
    if _adopted is not None:
        return
    job = request["info"]
    environment = request.get("environment") or {}
    if job.get("environ") is not None:
        os.environ.clear()
        os.environ.update({**job["environ"], SESSION: request["session"]})
    # Another interpreter has its own library and packages, which must come first.
    foreign = set(job.get("own_path") or ()) if environment.get("python") else set()
    for entry in reversed([entry for entry in job.get("sys_path", []) if entry not in foreign]):
        if entry in sys.path:
            sys.path.remove(entry)
        sys.path.insert(0, entry)
    sys.path[:] = [
        entry for entry in sys.path if entry
    ]  # "" comes from the command that started this process
    for entry in reversed(environment.get("sys_path") or []):
        sys.path.insert(0, entry)
    if os.environ.get("PYTHONBREAKPOINT") != "0":  # 0 disables breakpoints
        os.environ["PYTHONBREAKPOINT"] = BREAKPOINT_HOOK
    os.environ.update(environment.get("env_vars") or {})
    cwd = environment.get("cwd") or job.get("cwd")
    if cwd:
        try:
            os.chdir(cwd)
        except OSError as error:
            sys.stderr.write(f"skate: cannot change to the working directory {cwd}: {error}\n")
    if environment.get("cwd"):
        sys.path.insert(0, environment["cwd"])
    metadata = job.get("metadata") or {}
    if metadata.get("as_ray") or "skate._base.alias" in sys.modules:
        from skate._base import alias

        # The setting of the template's job must not apply to another job.
        (alias.install if metadata.get("as_ray") else alias.uninstall)()
    if job.get("argv"):
        sys.argv = list(job["argv"])
    keep()


def keep() -> None:
    """Take the present surroundings for those that were adopted: imports may have added variables of their own."""
    global _adopted
    _adopted = _snapshot()


def are_unchanged() -> bool:
    """Return whether the surroundings are still those that were adopted."""
    return _adopted == _snapshot()


def _snapshot() -> Snapshot:
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        folder = ""
    variables: dict[bytes, bytes] = vars(os.environ)["_data"]  # decoding them takes 20 times as long
    return dict(variables), list(sys.path), folder
