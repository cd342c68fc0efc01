"""Ray clusters on this machine, for the tests of the ray engine.

A Ray that `init` itself starts is not used in the tests' own process: after one has ended, actors of the next
session in that process die at once (a fault of Ray 2.60). Clusters of `cluster_utils` run on their own.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

# Arguments of `init` that describe a machine: they are for a cluster that is yet to be started.
OF_THE_MACHINE = frozenset(("labels", "num_cpus", "num_gpus", "object_store_memory", "resources"))

THREE_NODES = ({"num_cpus": 2}, {"num_cpus": 1}, {"num_cpus": 1})
ONE_MACHINE = ({"num_cpus": 4, "include_dashboard": True},)  # over which the state API is asked


class Clusters:
    """Starts clusters when a test needs them, and keeps them for the next test that needs the same.

    A cluster takes ten processes and as many seconds to start. The two that most tests use stay until the end, and
    of the others only the latest.
    """

    def __init__(self) -> None:
        self._running: dict[str, tuple[AbstractContextManager[Any], str]] = {}

    def address(self, *nodes: dict[str, Any]) -> str:
        """Return the address of a cluster with such nodes."""
        key = repr(nodes)
        if key not in self._running:
            for other in self._running.keys() - {repr(THREE_NODES), repr(ONE_MACHINE)}:
                self._end(other)
            made = cluster([*nodes])
            self._running[key] = made, made.__enter__().address
        return self._running[key][1]

    def close(self) -> None:
        """End all that run."""
        for key in list(self._running):
            self._end(key)

    def _end(self, key: str) -> None:
        self._running.pop(key)[0].__exit__(None, None, None)


@contextmanager
def cluster(nodes: list[dict[str, Any]]) -> Iterator[Any]:
    """Start a cluster with these nodes, of which the first is its head; yield it; end it."""
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_DEDUP_LOGS="0")
    from ray.cluster_utils import Cluster

    head = {"include_dashboard": False, **nodes[0]}
    if head["include_dashboard"]:
        head["dashboard_port"] = free_port()  # another cluster on this machine may have the usual one
    running = Cluster(initialize_head=True, head_node_args=head)
    try:
        for node in nodes[1:]:
            running.add_node(**node)
        running.wait_for_nodes()
        yield running
    finally:
        running.shutdown()


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
