"""Starting each engine with what `init` was given: what the machine has, and what the job wants."""

from __future__ import annotations

import os
from typing import Any, NamedTuple


class Machine(NamedTuple):
    """What is to be scheduled; None is what is found."""

    num_cpus: float | None
    num_gpus: float | None
    resources: dict[str, float] | None
    labels: dict[str, str] | None
    object_store_memory: int | None


class Job(NamedTuple):
    """What a driver says of its job."""

    namespace: str | None
    runtime_env: Any
    metadata: dict[str, Any]
    log_to_driver: bool


def ray(address: str | None, machine: Machine, job: Job, preflight: str, **given: Any) -> Any:
    """Connect to a Ray cluster, or start Ray."""
    from skate._engine.ray import connection

    return connection.connect(address, preflight=preflight, **job._asdict(), **machine._asdict(), **given)


def inline(machine: Machine, job: Job) -> Any:
    """Start a session in this process."""
    import signal

    from skate._engine.common import signals
    from skate._engine.inline import engine

    started = engine.start(
        num_cpus=machine.num_cpus,
        num_gpus=machine.num_gpus,
        custom=machine.resources,
        labels=machine.labels,
        object_store_memory=machine.object_store_memory,
        namespace=job.namespace,
        runtime_env=packed_environment(job.runtime_env),
        metadata=job.metadata,
    )
    if signals.is_free(signal.SIGTERM, signal.SIG_DFL):
        signals.install(signal.SIGTERM, signals.exit_on_signal, signal.SIG_DFL)
        started.on_shutdown(lambda: signals.uninstall(signal.SIGTERM))
    return started


def attached(address: str, job: Job) -> Any:
    """Attach to a node that runs."""
    from skate._api.submission import inherit
    from skate._engine.local.wire.interrupts import held_back

    with held_back():  # else msgspec may be left in a state in which it crashes
        from skate._engine.local.driver import driver, long_lived

    environment, metadata = inherit(packed_environment(job.runtime_env), job.metadata)
    return driver.connect(
        long_lived.find(address),
        namespace=job.namespace,
        runtime_env=environment,
        log_to_driver=job.log_to_driver,
        metadata=metadata,
    )


def local(
    machine: Machine,
    job: Job,
    *,
    memory: float | None,
    preload: list[str] | None,
    system_config: dict[str, Any] | None = None,
) -> Any:
    """Start a node of this driver's own."""
    from skate._engine.local.driver import launcher
    from skate._engine.local.driver.launcher import node_config

    config = node_config(
        num_cpus=machine.num_cpus,
        num_gpus=machine.num_gpus,
        custom=machine.resources,
        memory=memory,
        labels=machine.labels,
        object_store_memory=machine.object_store_memory,
        preload=[*(preload or []), *filter(None, os.environ.get("SKATE_PRELOAD", "").split(","))],
        system_config=system_config,
    )
    if "as_ray" in job.metadata:
        config["as_ray"] = True  # what is preloaded may import ray
    return launcher.start(
        config,
        namespace=job.namespace,
        runtime_env=packed_environment(job.runtime_env),
        log_to_driver=job.log_to_driver,
        metadata=job.metadata,
    )


def packed_environment(runtime_env: Any) -> dict[str, Any]:
    """Return a job's environment with its folders packed, as workers find them."""
    if not runtime_env:
        return {}
    from skate._base.runtime_envs.inheritance import as_runtime_env
    from skate._engine.common.environments import default_cache_dir, pack

    return dict(pack(as_runtime_env(runtime_env), default_cache_dir()))
