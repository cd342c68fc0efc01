"""Starting an engine with the arguments of `init`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from skate._base import tracing

if TYPE_CHECKING:
    from pathlib import Path

    from skate._engine.abc import Engine


class Machine(NamedTuple):
    """The resources to schedule; None stands for the detected value."""

    num_cpus: float | None
    num_gpus: float | None
    resources: dict[str, float] | None
    labels: dict[str, str] | None
    object_store_memory: int | None


class Job(NamedTuple):
    """The properties of a driver's job."""

    namespace: str | None
    runtime_env: Any
    metadata: dict[str, Any]
    log_to_driver: bool


def ray(address: str | None, machine: Machine, job: Job, preflight: str, **given: Any) -> Engine:
    """Connect to a Ray cluster, or start Ray."""
    from skate._engine.ray import connection

    return connection.connect(address, preflight=preflight, **job._asdict(), **machine._asdict(), **given)


def inline(machine: Machine, job: Job) -> Engine:
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


def attach(address: str, job: Job) -> Engine:
    """Attach to a running node."""
    from skate._api.submission import inherit
    from skate._engine.local.wire.interrupts import held_back

    with held_back():  # an interrupted import can leave msgspec in a state in which it crashes
        from skate._engine.local.driver import driver, long_lived

    environment, metadata = inherit(packed_environment(job.runtime_env), job.metadata)
    return driver.connect(
        long_lived.find(address),
        namespace=job.namespace,
        runtime_env=environment,
        log_to_driver=job.log_to_driver,
        metadata=metadata,
    )


def observing(address: str) -> Engine:
    """Attach to a running node as an observer, which is no job."""
    from skate._engine.local.driver import driver, long_lived

    return driver.connect(
        long_lived.find(address, observer=True),
        namespace=None,
        runtime_env={},
        log_to_driver=False,
        metadata={},
        observer=True,
    )


def local(
    machine: Machine,
    job: Job,
    *,
    memory: float | None,
    preload: list[str] | None,
    system_config: dict[str, Any] | None = None,
    temp_dir: str | None = None,
) -> Engine:
    """Start a private node for this driver."""
    from skate._engine.local.driver import launcher
    from skate._engine.local.driver.launcher import node_config

    config = node_config(
        num_cpus=machine.num_cpus,
        num_gpus=machine.num_gpus,
        custom=machine.resources,
        memory=memory,
        labels=machine.labels,
        object_store_memory=machine.object_store_memory,
        preload=[
            *(preload or []),
            *filter(None, os.environ.get("SKATE_PRELOAD", "").split(",")),
            *([tracing.SDK] if tracing.HOOK in job.metadata else ()),
        ],
        system_config=system_config,
    )
    if "as_ray" in job.metadata:
        config["as_ray"] = True  # a preloaded module may import ray
    return launcher.start(
        config,
        namespace=job.namespace,
        runtime_env=packed_environment(job.runtime_env),
        log_to_driver=job.log_to_driver,
        metadata=job.metadata,
        temp_dir=temp_dir,
    )


def packed_environment(runtime_env: Any) -> dict[str, Any]:
    """Return a job's runtime environment with its folders packed for the workers."""
    if not runtime_env:
        return {}
    from skate._base.runtime_envs.inheritance import as_runtime_env
    from skate._engine.common.environments import default_cache_dir, pack

    return dict(pack(as_runtime_env(runtime_env), default_cache_dir()))


def package_file(uri: str) -> Path | None:
    """Return the file of a package that `packed_environment` made, or None for the URI of anything else."""
    from skate._engine.common.environments import default_cache_dir
    from skate._engine.common.environments.packages import find_package

    return find_package(uri, default_cache_dir())
