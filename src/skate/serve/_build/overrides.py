"""Applies the overrides of a configuration file to a built application.

The result has the file's options and runtime environment, and versions that change when replicas must be replaced.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from skate.air._arguments import hint_for_unknown
from skate.serve._build.remote_build import BuildResult
from skate.serve._build.spec import ApplicationSpec
from skate.serve._config.options import REPLACES_REPLICAS, DeploymentOptions

if TYPE_CHECKING:
    from skate.serve._schema.config_file import ServeApplicationSchema

__all__ = ["apply_overrides", "compute_digest", "merge_environments"]


def apply_overrides(
    built: BuildResult,
    app: ServeApplicationSchema,
    code: str,
    environment: Mapping[str, Any],
    *,
    import_folder: str | None = None,
    logging_config: Any = None,
    target_capacity: float | None = None,
    is_ramping_up: bool = False,
) -> ApplicationSpec:
    """Return the specification of an application in a configuration file.

    Args:
        built: The built application.
        app: The application's section in the file.
        code: A digest of the section's import path, arguments and runtime environment.
        environment: The application's runtime environment, packed.
        import_folder: A folder that replicas need on their import path, if any.
        logging_config: The file's logging configuration, for applications and deployments without one.
        target_capacity: The percentage of replicas to run.
        is_ramping_up: Whether `target_capacity` is increasing step by step.

    Raises:
        ValueError: If the file names a deployment that does not exist, or invalid options.
    """
    spec = built.spec
    names = [each.id.name for each in spec.deployments]
    for name in app.deployment_names:
        if name not in names:
            raise ValueError(
                f"Deployment '{name}' does not exist. Application '{app.name}' has: {', '.join(names)}. "
                f"{hint_for_unknown(name, names)}"
            )
    given = {each.name: each.overrides() for each in app.deployments}
    log = app.logging_config or logging_config
    deployments = []
    for each in spec.deployments:
        options = each.options.merged(given.get(each.id.name, {}), f"deployment '{each.id.name}' of the file")
        if log is not None and options.logging_config is None:
            options = options.merged({"logging_config": log})
        options = _in_environment(options, environment)
        version = compute_digest(code, built.digest, {name: getattr(options, name) for name in _HEAVY})
        options = replace(options, version=version)
        if import_folder is not None:
            options = _in_environment(options, {}, import_folder)
        deployments.append(
            replace(
                each,
                options=options,
                version=version,
                target_capacity=target_capacity,
                is_ramping_up=is_ramping_up,
            )
        )
    return replace(
        spec,
        route_prefix=app.route_prefix,
        deployments=tuple(deployments),
        logging_config=log,
        external_scaler_enabled=app.external_scaler_enabled,
        is_declarative=True,
        config=app.model_dump(exclude_unset=True),
    )


# The options that, besides the code, determine a version.
_HEAVY = REPLACES_REPLICAS - {"version"}


def _in_environment(
    options: DeploymentOptions, environment: Mapping[str, Any], import_folder: str | None = None
) -> DeploymentOptions:
    own = options.ray_actor_options.get("runtime_env") or {}
    merged = merge_environments(environment, own, import_folder)
    if merged == own:
        return options
    return replace(options, ray_actor_options={**options.ray_actor_options, "runtime_env": merged})


def merge_environments(
    outer: Mapping[str, Any], own: Mapping[str, Any], import_folder: str | None = None
) -> dict[str, Any]:
    """Return an inner environment merged into an outer one: variables are added, other keys replaced.

    >>> merge_environments({"pip": ["a"], "env_vars": {"A": "1"}}, {"env_vars": {"B": "2"}})
    {'pip': ['a'], 'env_vars': {'A': '1', 'B': '2'}}
    """
    variables = {**(outer.get("env_vars") or {}), **(own.get("env_vars") or {})}
    if import_folder is not None:
        variables["PYTHONPATH"] = ":".join(filter(None, [variables.get("PYTHONPATH"), import_folder]))
    merged = {**outer, **own}
    return {**merged, "env_vars": variables} if variables else merged


def compute_digest(*parts: Any) -> str:
    """Return a short digest of the parts."""
    text = json.dumps(parts, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
