"""The description of a job that a driver sends to the node, and the inheritance of runtime environments."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skate._engine.local.client.engine import LocalEngine


def job_info(namespace: str, runtime_env: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """Return what workers need to reproduce the environment of this driver."""
    paths = [os.path.abspath(entry) if entry else os.getcwd() for entry in sys.path]
    main = sys.modules.get("__main__")
    script = getattr(main, "__file__", None)
    if script and getattr(main, "__spec__", None) is None:  # `python -m` does not add the folder
        folder = os.path.dirname(os.path.abspath(script))
        if folder not in paths:
            paths.insert(0, folder)
    return {
        "sys_path": paths,
        "own_path": _interpreter_path(paths),
        "cwd": os.getcwd(),
        "namespace": namespace,
        "runtime_env": runtime_env,
        "entrypoint": " ".join(sys.argv),
        "argv": list(sys.argv),
        "terminal": has_terminal(),
        **extra,
    }


def has_terminal() -> bool:
    """Return whether this process runs in the foreground of a terminal that it reads and writes."""
    try:
        streams = [stream.fileno() for stream in (sys.stdin, sys.stdout)]
        return all(map(os.isatty, streams)) and os.tcgetpgrp(streams[0]) == os.getpgrp()
    except (AttributeError, OSError, ValueError):  # a stream is missing, closed, or not a file
        return False


def _interpreter_path(paths: list[str]) -> list[str]:
    """Return the entries that belong to this interpreter: its library and its packages."""
    library = os.path.dirname(os.__file__)
    own = {library, os.path.join(library, "lib-dynload")}
    return [
        path for path in paths if path in own or path.endswith((".zip", "site-packages", "dist-packages"))
    ]


def environment_resolver(
    engine: LocalEngine, job_env: dict[str, Any], inherited: dict[str, Any]
) -> Callable[[dict[str, Any] | None], str]:
    """Return a function that returns the serialized runtime environment of a task or an actor.

    Equal environments have equal texts, so that workers can be compared and reused. A task without an environment of
    its own inherits that of its submitter, or of the job.
    """
    inherited_text = _text(inherited) if inherited else (_text(job_env) if job_env else "")

    def resolve(own: dict[str, Any] | None) -> str:
        if not own:
            return inherited_text
        from skate._base.runtime_envs.inheritance import for_task, merge

        merged = merge(inherited or job_env, for_task(own))
        return _text(merged)

    return resolve


def _text(env: dict[str, Any]) -> str:
    from skate._engine.common.environments import fingerprint

    plain = {key: value for key, value in env.items() if value is not None}
    return json.dumps({"fingerprint": fingerprint(plain), "env": plain}, sort_keys=True, default=str)


def environment_of(text: str) -> dict[str, Any]:
    """Return the runtime environment in a serialized text."""
    env: dict[str, Any] = json.loads(text)["env"]
    return env
