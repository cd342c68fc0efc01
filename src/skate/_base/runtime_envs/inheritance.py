"""The environment of a task or actor: its own, merged with that of its submitter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skate._base.runtime_envs.fields import INSTALLERS, uri_scheme
from skate._base.runtime_envs.runtime_env import RuntimeEnv


def as_runtime_env(value: Mapping[str, Any] | RuntimeEnv | None) -> RuntimeEnv:
    """Return a validated environment from a dict, an environment, or None.

    Raises:
        TypeError: It is something else, or a field has the wrong type.
        ValueError: A field is unknown or its value is invalid.
    """
    if value is None:
        return RuntimeEnv()
    if isinstance(value, RuntimeEnv):
        return value
    if not isinstance(value, Mapping):
        raise TypeError(f"runtime_env must be a dict or a RuntimeEnv, got {type(value)}: {value!r}")
    for name in value:
        if not isinstance(name, str):
            raise TypeError(f"runtime_env must have strings as keys, got {name!r}")
    return RuntimeEnv(**value)


def for_task(value: Mapping[str, Any] | RuntimeEnv | None) -> RuntimeEnv:
    """Return the validated environment of a task or actor, which cannot name local files.

    A job's files are copied when it starts. A task may be submitted from anywhere, so a path in its environment could
    name different files each time.

    Raises:
        ValueError: `working_dir` or `py_modules` is a local path.
    """
    env = as_runtime_env(value)
    for item in [*filter(None, [env.working_dir()]), *env.py_modules()]:
        if uri_scheme(item) is None:
            raise ValueError(
                f"{item!r} is not a valid URI. Local directories and files can only be given for the whole "
                "job: pass them to init(runtime_env=...), or name an archive as file:///path/to/it.zip."
            )
    return env


def merge(
    parent: Mapping[str, Any] | RuntimeEnv | None, child: Mapping[str, Any] | RuntimeEnv | None
) -> RuntimeEnv:
    """Return the environment of a child that inherits from its parent.

    Environment variables are merged one by one; any other field of the child replaces the parent's. A child that
    installs packages in its own way does not get the parent's installation too, because a worker has only one Python.
    """
    merged = dict(parent or {})
    own = dict(child or {})
    if any(name in own for name in INSTALLERS):
        for name in (*INSTALLERS, "_ray_commit"):
            merged.pop(name, None)
    variables = {**merged.get("env_vars", {}), **own.get("env_vars", {})}
    merged.update(own)
    if variables:
        merged["env_vars"] = variables
    return RuntimeEnv.restore(merged)
