"""`connect` and `disconnect`: the older way to use a Ray cluster, kept for the programs that use it."""

from __future__ import annotations

import warnings
from typing import Any

import skate

__all__ = ["connect", "disconnect"]


def connect(
    conn_str: str,
    secure: bool = False,
    metadata: list[tuple[str, str]] | None = None,
    connection_retries: int = 3,
    job_config: Any = None,
    namespace: str | None = None,
    *,
    ignore_version: bool = False,
    _credentials: Any = None,
    ray_init_kwargs: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Connect to a Ray cluster; ``skate.init("ray://host:port")`` does the same.

    Args:
        conn_str: Host and port of the cluster.
        secure: Must be False: the environment variables of Ray switch TLS on.
        metadata: Must be empty.
        connection_retries: Has no effect.
        job_config: The settings of the job.
        namespace: Where names of actors are looked up.
        ignore_version: Has no effect.
        ray_init_kwargs: More arguments of `skate.init`.

    Returns:
        The versions of the cluster.

    Raises:
        RuntimeError: This process has a session.
        NotImplementedError: The arguments ask for a secure channel.
        ImportError: The `ray` engine is not installed.
    """
    warnings.warn('Use skate.init("ray://host:port") instead', DeprecationWarning, stacklevel=2)
    if secure or metadata or _credentials is not None:
        raise NotImplementedError(
            "connect() takes no secure, metadata or credentials: set RAY_USE_TLS and RAY_TLS_* for the cluster."
        )
    if skate.is_initialized():
        raise RuntimeError("This process has a session already; call skate.shutdown() before connect().")
    context: Any = skate.init(
        f"ray://{conn_str}", job_config=job_config, namespace=namespace, **(ray_init_kwargs or {})
    )
    return {
        "python_version": context.python_version,
        "ray_version": context.ray_version,
        "ray_commit": context.ray_commit,
    }


def disconnect() -> None:
    """End the session; again does nothing. `skate.shutdown` does the same."""
    warnings.warn("Use skate.shutdown() instead", DeprecationWarning, stacklevel=2)
    skate.shutdown()
