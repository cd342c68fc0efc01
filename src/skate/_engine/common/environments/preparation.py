"""From a runtime environment to the settings of a worker process."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skate._base.errors import RuntimeEnvSetupError
from skate._base.runtime_envs.config import DEFAULT_SETUP_TIMEOUT_SECONDS
from skate._base.runtime_envs.fields import RAY_ONLY
from skate._engine.common.environments.cache import Cache
from skate._engine.common.environments.commands import Deadline
from skate._engine.common.environments.hooks import export_setup_hook
from skate._engine.common.environments.variables import expand_variables, prepend_path

_READ_AT_START = ("DYLD_", "GLIBC_", "LD_", "MALLOC_", "OMP_", "MKL_", "OPENBLAS_", "PYTHON")


@dataclass(frozen=True)
class WorkerEnvironment:
    """The settings of a worker process.

    Attributes:
        env_vars: Variables to add to its environment, with references to others expanded.
        python: Command line of its Python, or None for that of the node.
        cwd: Directory to run in, or None for that of the driver.
        sys_path: Directories to put in front of ``sys.path``. They are in ``PYTHONPATH`` too, for the processes that
            it
            starts.
        setup_hook: The argument of ``run_setup_hook`` before the first task.
    """

    env_vars: Mapping[str, str] = field(default_factory=dict)
    python: tuple[str, ...] | None = None
    cwd: str | None = None
    sys_path: tuple[str, ...] = ()
    setup_hook: str | None = None

    @property
    def needs_new_process(self) -> bool:
        """Whether a worker must be spawned, because a forked one would not notice a change.

        This applies to another Python, and to variables that the loader and the interpreter read only once.
        """
        names = set(self.env_vars) - {"PYTHONPATH"}
        return self.python is not None or any(name.startswith(_READ_AT_START) for name in names)


def prepare(
    runtime_env: Mapping[str, Any] | None,
    cache_dir: Path,
    *,
    base_env: Mapping[str, str] | None = None,
    session_dir: Path | None = None,
) -> WorkerEnvironment:
    """Prepare a runtime environment, and return the settings of its workers.

    Args:
        runtime_env: A validated environment, packed or not.
        cache_dir: The folder of packages and installed environments.
        base_env: The environment variables of workers otherwise; by default those of this process.
        session_dir: The session's folder. Tasks may write into their working directory, so it is a copy in this
            folder,
            separate from other sessions.

    Raises:
        RuntimeEnvSetupError: It cannot be prepared, takes too long, or needs a Ray cluster.
    """
    env = dict(runtime_env or {})
    _refuse_unavailable(env)
    try:
        base = dict(os.environ if base_env is None else base_env)
        return _prepare(env, Cache(cache_dir), base, session_dir)
    except OSError as error:
        raise RuntimeEnvSetupError(
            f"The runtime_env could not be set up in {cache_dir}: {type(error).__name__}: {error}"
        ) from error


def _refuse_unavailable(env: Mapping[str, Any]) -> None:
    for name in env:
        if name in RAY_ONLY:
            shown = name.removeprefix("_")
            raise RuntimeEnvSetupError(
                f"runtime_env['{shown}'] is not available on this engine: {RAY_ONLY[name]} needs a Ray "
                "cluster. Use the `ray` engine, skate.init('ray://<head>:10001'), or leave the field out."
            )


def _prepare(
    env: Mapping[str, Any], cache: Cache, base_env: dict[str, str], session_dir: Path | None
) -> WorkerEnvironment:
    seconds = env.get("config", {}).get("setup_timeout_seconds", DEFAULT_SETUP_TIMEOUT_SECONDS)
    deadline = Deadline(None if seconds == -1 else seconds)
    variables = expand_variables(env.get("env_vars", {}), base_env)
    for_installers = {**base_env, **variables}
    excludes = tuple(env.get("excludes", ()))

    cwd: Path | None = None
    sys_path: list[str] = []
    if env.get("py_modules"):
        from skate._engine.common.environments.packages import module_directory

        sys_path += [
            str(module_directory(item, cache, env=for_installers, deadline=deadline, excludes=excludes))
            for item in env["py_modules"]
        ]
    if env.get("working_dir"):
        from skate._engine.common.environments.packages import copy_for_session, working_directory

        cwd = working_directory(env["working_dir"], cache, excludes)
        if session_dir is not None:
            cwd = copy_for_session(cwd, session_dir)
        sys_path.append(str(cwd))

    python: tuple[str, ...] | None = None
    prefix = _install(env, cache, for_installers, cwd, deadline)
    if prefix is not None:
        python = (str(prefix / "bin" / "python"),)
        variables["PATH"] = prepend_path([str(prefix / "bin")], for_installers.get("PATH"))
        variables["CONDA_PREFIX" if env.get("conda") else "VIRTUAL_ENV"] = str(prefix)
    if env.get("py_executable"):
        python = tuple(shlex.split(env["py_executable"]))
    # A forked worker does not read PYTHONPATH, so its entries are passed on as well.
    sys_path += [entry for entry in variables.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if sys_path:
        variables["PYTHONPATH"] = prepend_path(sys_path, base_env.get("PYTHONPATH"))
    hook = env.get("worker_process_setup_hook")
    return WorkerEnvironment(
        env_vars=variables,
        python=python,
        cwd=None if cwd is None else str(cwd),
        sys_path=tuple(sys_path),
        setup_hook=None if hook is None else export_setup_hook(hook),
    )


def _install(
    env: Mapping[str, Any], cache: Cache, variables: Mapping[str, str], cwd: Path | None, deadline: Deadline
) -> Path | None:
    for tool in ("pip", "uv"):
        if env.get(tool):
            from skate._engine.common.environments.virtualenvs import virtual_environment

            return virtual_environment(
                tool, env[tool], cache, env=variables, working_dir=cwd, deadline=deadline
            )
    if env.get("conda"):
        from skate._engine.common.environments.conda import conda_environment

        return conda_environment(env["conda"], cache, env=variables, deadline=deadline)
    return None
