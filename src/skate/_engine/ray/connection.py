"""Connecting to a Ray cluster, or starting Ray on this machine."""

from __future__ import annotations

import socket
from typing import Any

from skate._base.alias import real_ray
from skate._engine.ray.engine import RayEngine
from skate._engine.ray.failures import translated
from skate._engine.ray.preflight import check

CONNECT_TIMEOUT_S = 10.0


def connect(
    address: str | None,
    *,
    namespace: str | None,
    runtime_env: Any,
    log_to_driver: bool,
    metadata: dict[str, Any],
    preflight: str,
    **given: Any,
) -> RayEngine:
    """Make this process a driver of a Ray cluster.

    Args:
        address: Of the cluster: "ray://host:port" (Ray Client), "auto" or "host:port"; None is as for `ray.init`:
            the cluster that runs here or that RAY_ADDRESS names, else a Ray of its own on this machine.
        namespace: The namespace of named actors.
        runtime_env: Runtime environment of all workers of this job.
        log_to_driver: Whether this process prints the output of workers.
        metadata: Metadata of the job.
        preflight: "raise", "warn" or "off": how to report problems that would make the program fail there.
        given: Further arguments of `ray.init`; None stands for Ray's default.

    Raises:
        ConnectionError: No cluster answers at the address.
        PreflightError: The program cannot run there; the error lists all problems.
    """
    if address is not None:
        check_reachable(address)  # first, because it takes less time than importing Ray
    theirs = real_ray()
    if theirs.is_initialized():  # the program connected without Skate
        return RayEngine(owns_connection=True, address=address)
    arguments = {key: value for key, value in given.items() if value is not None}
    if address is None and not _OF_A_MACHINE.isdisjoint(arguments):
        address = "local"  # Ray would find a running cluster, and then refuse to change its resources
    if runtime_env:
        arguments["runtime_env"] = dict(runtime_env)
    if metadata:
        arguments["job_config"] = _job_config(metadata)
        if "logging_config" in metadata:
            arguments["logging_config"] = theirs.LoggingConfig(**metadata["logging_config"])
    try:
        session = theirs.init(address, namespace=namespace, log_to_driver=log_to_driver, **arguments)
    except Exception as error:
        raise translated(error) from None
    info = dict(getattr(session, "address_info", None) or {})
    if not info.get("webui_url") and getattr(session, "dashboard_url", None):  # the context of Ray Client
        info["webui_url"] = session.dashboard_url
    engine = RayEngine(owns_connection=True, address=address, address_info=info)
    try:
        check(engine, preflight)
    except BaseException:
        engine.shutdown()
        raise
    return engine


def check_reachable(address: str) -> None:
    """Raise ConnectionError if nothing listens at the address: Ray itself would retry for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return  # "auto", or a name that Ray looks up
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise ConnectionError(
            f"No Ray cluster answers at {address} ({error}). Is it running, and is the port right? Ray Client listens "
            "at port 10001 (ray://host:10001), and the head node at 6379 for drivers on the cluster's own machines."
        ) from None


def _job_config(metadata: dict[str, Any]) -> Any:
    plain = {key: str(value) for key, value in metadata.items() if key not in _SPECIAL}
    lifetime = metadata.get("default_actor_lifetime")
    arguments = {"default_actor_lifetime": lifetime} if lifetime else {}
    return real_ray("ray.job_config").JobConfig(metadata=plain, **arguments)


# Arguments for a new Ray that a running cluster does not accept.
_OF_A_MACHINE = frozenset(("labels", "num_cpus", "num_gpus", "object_store_memory", "resources"))

# Metadata that Ray takes as separate arguments, or that only Skate uses.
_SPECIAL = frozenset(("default_actor_lifetime", "logging_config", "as_ray"))
