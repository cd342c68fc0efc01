"""`connect` and `disconnect`, an older API for Ray clusters."""

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
        secure: Must be False: Ray's environment variables enable TLS.
        metadata: Must be empty.
        connection_retries: Accepted as in Ray, without effect.
        job_config: Settings of the job.
        namespace: Namespace of named actors.
        ignore_version: Accepted as in Ray, without effect.
        ray_init_kwargs: Further arguments of `skate.init`.

    Returns:
        The versions of the cluster.

    Raises:
        RuntimeError: This process already has a session.
        NotImplementedError: The arguments request a secure channel.
        ImportError: The `ray` engine is not installed.
    """
    warnings.warn('Use skate.init("ray://host:port") instead', DeprecationWarning, stacklevel=2)
    if secure or metadata or _credentials is not None:
        raise NotImplementedError(
            "connect() does not support secure, metadata or credentials: set RAY_USE_TLS and RAY_TLS_* for the cluster."
        )
    if skate.is_initialized():
        raise RuntimeError("This process already has a session; call skate.shutdown() before connect().")
    context: Any = skate.init(
        f"ray://{conn_str}", job_config=job_config, namespace=namespace, **(ray_init_kwargs or {})
    )
    return {
        "python_version": context.python_version,
        "ray_version": context.ray_version,
        "ray_commit": context.ray_commit,
    }


def disconnect() -> None:
    """End the session; without a session, do nothing. `skate.shutdown` does the same."""
    warnings.warn("Use skate.shutdown() instead", DeprecationWarning, stacklevel=2)
    skate.shutdown()
