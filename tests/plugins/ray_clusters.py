"""Ray clusters on this machine, for the tests of the ray engine.

A Ray that `init` itself starts is not used in the tests' own process: after one has ended, actors of the next
session in that process die at once (a fault of Ray 2.60). Clusters of `cluster_utils` run on their own.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.plugins import ray_worker_launcher, ray_worker_template

# Arguments of `init` that describe a machine: they are for a cluster that is yet to be started.
OF_THE_MACHINE = frozenset(("labels", "num_cpus", "num_gpus", "object_store_memory", "resources"))

THREE_NODES = ({"num_cpus": 2}, {"num_cpus": 1}, {"num_cpus": 1})
ONE_MACHINE = ({"num_cpus": 4, "include_dashboard": True},)  # over which the state API is asked

# Processes of a node that no test needs: the autoscaler, and what sends the output of workers to drivers.
WITHOUT = {"no_monitor": True, "include_log_monitor": False}


class Clusters:
    """Starts clusters when a test needs them, and keeps them for the next test that needs the same.

    A cluster takes ten processes and as many seconds to start. The two that most tests use stay until the end, and
    of the others only the latest. Their workers are forks of one process.
    """

    def __init__(self) -> None:
        self._template = ExitStack()
        self._fork_workers: dict[str, Any] = {}
        self._running: dict[str, tuple[ExitStack, str]] = {}

    def address(self, *nodes: dict[str, Any]) -> str:
        """Return the address of a cluster with such nodes."""
        key = repr(nodes)
        if key not in self._running:
            for other in self._running.keys() - {repr(THREE_NODES), repr(ONE_MACHINE)}:
                self._end(other)
            if not self._fork_workers:
                self._fork_workers = self._template.enter_context(worker_template())
            ending = ExitStack()
            made = ending.enter_context(
                cluster([{**WITHOUT, **self._fork_workers, **each} for each in nodes])
            )
            self._running[key] = ending, made.address
        return self._running[key][1]

    def close(self) -> None:
        """End all that run."""
        for key in list(self._running):
            self._end(key)
        self._template.close()

    def _end(self, key: str) -> None:
        self._running.pop(key)[0].close()


@contextmanager
def worker_template() -> Iterator[dict[str, Any]]:
    """Start the process that forks workers; yield the arguments of nodes that use it; end it."""
    from ray._private.workers import setup_worker

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "template"))
        os.environ[ray_worker_launcher.SOCKET] = path
        os.environ[ray_worker_launcher.SETUP_WORKER] = setup_worker.__file__
        command = [sys.executable, ray_worker_template.__file__, path]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as template:
            assert template.stdout is not None
            assert template.stdout.readline() == b"ready\n", "the template of Ray's workers has not started"
            yield {"setup_worker_path": ray_worker_launcher.__file__}


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
