"""Long-lived nodes, for the command line: start, find, stop and observe them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import skate._engine as engines
from skate._api import dashboards, init_arguments
from skate._base import tracing
from skate._engine.common.session_roots import UnusableFolderError, root, shm_root
from skate._engine.local.driver.long_lived import GRACE_SECONDS, end, find, stop, wait
from skate._engine.local.session.node_records import NodeRecord, current, nodes

if TYPE_CHECKING:
    from skate._engine.abc import Engine

__all__ = [
    "GRACE_SECONDS",
    "NodeRecord",
    "UnusableFolderError",
    "current",
    "end",
    "find",
    "is_dashboard",
    "is_local",
    "join",
    "nodes",
    "observe",
    "plain_address",
    "root",
    "shm_root",
    "start",
    "stop",
    "store",
    "wait",
]


def start(
    *,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: dict[str, float] | None = None,
    labels: dict[str, str] | None = None,
    memory: float | None = None,
    object_store_memory: int | None = None,
    preload: list[str] | None = None,
    tracing_startup_hook: str | None = None,
) -> NodeRecord:
    """Start a node that outlives this process; the arguments are those of `init`.

    Raises:
        RuntimeError: A node is running already, or the new one did not start.
        ValueError: An argument is wrong.
        ImportError: There is a tracing hook, and OpenTelemetry's SDK is not installed.
    """
    from skate._engine.local.driver import long_lived

    init_arguments.check(
        {
            "num_cpus": num_cpus,
            "num_gpus": num_gpus,
            "resources": resources,
            "labels": labels,
            "object_store_memory": object_store_memory,
        }
    )
    return long_lived.start(
        num_cpus=num_cpus,
        num_gpus=num_gpus,
        custom=resources,
        memory=memory,
        labels=labels,
        object_store_memory=object_store_memory,
        preload=preload,
        tracing_hook=None if tracing_startup_hook is None else tracing.check_hook(tracing_startup_hook),
    )


_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


def _is_default_dashboard(address: str) -> bool:
    """Return whether an address is the URL at which Ray's dashboard listens by default, without a token."""
    parts = urlsplit(address)
    return parts.hostname in _LOCAL_HOSTS and parts.port == dashboards.DEFAULT_PORT and not parts.query


def is_dashboard(address: str, *, has_credentials: bool = False) -> bool:
    """Return whether an address is the URL of a dashboard that requests are sent to.

    Ray's default URL without a token means the node on this machine, which needs no dashboard.

    Args:
        address: The address.
        has_credentials: Whether a token is sent besides that of the URL.
    """
    is_url = address.startswith(("http://", "https://"))
    return is_url and (has_credentials or not _is_default_dashboard(address))


def plain_address(address: str) -> str:
    """Return a node's address; "auto" for the URL of a dashboard on this machine, which users of Ray may pass."""
    is_url = address.startswith(("http://", "https://"))
    return "auto" if is_url and urlsplit(address).hostname in _LOCAL_HOSTS else address


@contextmanager
def observe(address: str) -> Iterator[Engine]:
    """Attach to a node without becoming a job on it; in the block, it is the session of this process."""
    from skate.util.state._attachment import attach

    with attach(address) as engine:
        mine = engines.running() is None
        if mine:
            engines.adopt(engine)
        try:
            yield engine
        finally:
            if mine:
                engines.leave()


@contextmanager
def join(address: str, *, as_ray: bool = False) -> Iterator[None]:
    """Attach to a node as a driver that `list_jobs` does not show; a session that is running is used instead.

    Args:
        address: The node.
        as_ray: Whether `import ray` imports Skate in the workers of this driver.
    """
    if engines.running() is not None:
        yield
        return
    from skate._engine.local.driver import driver

    engine = driver.connect(
        find(address, observer=True),
        namespace=None,
        runtime_env={},
        log_to_driver=False,
        metadata={"as_ray": True} if as_ray else {},
        hidden=True,
    )
    engines.adopt(engine)
    try:
        yield
    finally:
        engines.leave()
        engine.shutdown()


def is_local() -> bool:
    """Return whether the session of this process is on a node of Skate's."""
    return engines.current().name == "local"


def store() -> dict[str, int]:
    """Return the size and the usage of the object store."""
    return engines.current().object_store()
