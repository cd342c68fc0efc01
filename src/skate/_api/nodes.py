"""Long-lived nodes for the command line: start, find, stop, and look at one without being seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import skate._engine as engines
from skate._api import init_arguments
from skate._engine.common.session_roots import UnusableFolderError, root, shm_root
from skate._engine.local.driver.long_lived import GRACE_SECONDS, end, find, stop, wait
from skate._engine.local.session.node_records import NodeRecord, current, nodes

__all__ = [
    "GRACE_SECONDS",
    "NodeRecord",
    "UnusableFolderError",
    "current",
    "end",
    "find",
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
) -> NodeRecord:
    """Start a node that outlives this process, with the meaning of `init`'s arguments.

    Raises:
        RuntimeError: One runs already, or it did not start.
        ValueError: An argument cannot be right.
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
    )


_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


def plain_address(address: str) -> str:
    """Return the address of a node where a user of Ray may have named its dashboard: "auto" for one on this machine."""
    is_url = address.startswith(("http://", "https://"))
    return "auto" if is_url and urlsplit(address).hostname in _LOCAL_HOSTS else address


@contextmanager
def observe(address: str) -> Iterator[Any]:
    """Make a node the session of this process for a while, without being a job on it."""
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
def join(address: str) -> Iterator[None]:
    """Be a driver on a node for a while, one that `list_jobs` does not show; in a session, just use that."""
    if engines.running() is not None:
        yield
        return
    from skate._engine.local.driver import driver

    engine = driver.connect(
        find(address, observer=True),
        namespace=None,
        runtime_env={},
        log_to_driver=False,
        metadata={},
        hidden=True,
    )
    engines.adopt(engine)
    try:
        yield
    finally:
        engines.leave()
        engine.shutdown()


def store() -> dict[str, Any]:
    """Return how full the memory for objects is."""
    found: dict[str, Any] = engines.current().state("memory")
    return found
