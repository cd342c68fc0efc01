"""The runtime environment and the metadata that a driver inherits through environment variables.

Skate's job submission sets its own variable. Ray's job submission, like other launchers, sets
RAY_JOB_CONFIG_JSON_ENV_VAR. RAY_RUNTIME_ENV_HOOK names a function that can change the environment of each driver.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from skate._base import variables

VARIABLE = "SKATE_SUBMITTED_JOB"
_JOB_CONFIG = "JOB_CONFIG_JSON_ENV_VAR"
_HOOK = "RUNTIME_ENV_HOOK"
_OVERRIDE = "OVERRIDE_JOB_RUNTIME_ENV"


def describe(runtime_env: dict[str, Any], metadata: dict[str, str]) -> str:
    """Return the variable's value for a job."""
    return json.dumps({"runtime_env": runtime_env, "metadata": metadata})


def inherit(runtime_env: dict[str, Any], metadata: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a driver's environment and metadata, with those of its submission as defaults."""
    text = os.environ.get(VARIABLE)
    if not text:
        return runtime_env, metadata
    from skate._base.runtime_envs.inheritance import merge

    submitted = json.loads(text)
    return dict(merge(submitted["runtime_env"], runtime_env)), {**submitted["metadata"], **metadata}


def add_job_config(
    runtime_env: Mapping[str, Any] | None, metadata: dict[str, Any]
) -> tuple[Mapping[str, Any] | None, dict[str, Any]]:
    """Return a driver's environment and metadata, merged with those of RAY_JOB_CONFIG_JSON_ENV_VAR.

    Raises:
        ValueError: The variable holds no job config, or it and the driver set the same field of the environment.
    """
    found = variables.find(_JOB_CONFIG)
    if found is None:
        return runtime_env, metadata
    variable, text = found
    try:
        config = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{variable} must hold a job config as JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{variable} must hold a job config as a JSON object, got {text!r}")
    from skate._base.runtime_envs.inheritance import as_runtime_env, merge

    outer, inner = as_runtime_env(config.get("runtime_env") or {}), as_runtime_env(runtime_env or {})
    same = sorted((outer.keys() & inner.keys()) - {"env_vars"})
    same += sorted((outer.get("env_vars") or {}).keys() & (inner.get("env_vars") or {}).keys())
    if same and not variables.flag(_OVERRIDE, False):
        raise ValueError(
            f"{variable} and init(runtime_env=...) both set {', '.join(same)}. Leave it out of one of them, or set "
            "RAY_OVERRIDE_JOB_RUNTIME_ENV=1 to use that of init."
        )
    return merge(outer, inner), {**metadata, **(config.get("metadata") or {})}


def call_submit_hook(**arguments: Any) -> None:
    """Call the function that RAY_JOB_SUBMIT_HOOK names, which may end the command.

    Args:
        arguments: The options of the command, which the function gets by name.

    Raises:
        ValueError: The function cannot be imported.
    """
    hook = _find_hook("JOB_SUBMIT_HOOK")
    if hook is not None:
        hook(**arguments)


def _find_hook(name: str) -> Callable[..., Any] | None:
    """Return the function that a variable names, or None."""
    found = variables.find(name)
    if found is None:
        return None
    variable, path = found
    module, _, function = path.rpartition(".")
    try:
        hook: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{variable} is {path!r}, which cannot be imported as a function: {error}"
        ) from error
    return hook


def apply_hook(runtime_env: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a driver's environment, changed by the function that RAY_RUNTIME_ENV_HOOK names.

    Raises:
        ValueError: The function cannot be imported.
    """
    hook = _find_hook(_HOOK)
    if hook is None:
        return runtime_env
    changed: Mapping[str, Any] | None = hook(None if runtime_env is None else dict(runtime_env))
    return changed
