"""Tells workers how to find each other, so that LightGBM lets them grow one model together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import skate
from skate.train._frameworks import addresses, threads
from skate.train.backend import Backend, BackendConfig

if TYPE_CHECKING:
    from skate.train._workers.group import WorkerGroup

__all__ = ["LightGBMConfig", "get_network_params"]

_network: dict[str, Any] = {}


def get_network_params() -> dict[str, Any]:
    """Return the parameters by which LightGBM finds the other workers, for those of `lightgbm.train`.

    They are `machines`, `num_machines` and `local_listen_port`. There are none where one worker trains alone.
    """
    return dict(_network)


@dataclass
class LightGBMConfig(BackendConfig):
    """How workers find each other: each listens on a port, and knows those of all."""

    @property
    def backend_cls(self) -> type[Backend]:
        """The class that does it."""
        return _LightGBMBackend

    @property
    def train_func_context(self) -> Callable[[], Any]:
        """Runs the training function with as many threads as the worker has CPUs."""
        return _OwnThreads

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules that every worker needs. Importing LightGBM starts no threads: it is safe to fork afterwards."""
        return ("lightgbm", "pandas")


class _LightGBMBackend(Backend):
    def on_training_start(self, worker_group: WorkerGroup, backend_config: LightGBMConfig) -> None:
        """Let each worker choose its port, and tell all workers the ports of all."""
        size = len(worker_group)
        if size == 1:
            return
        ports = worker_group.execute(addresses.claim)
        hosts = addresses.hosts(worker_group)
        machines = ",".join(f"{host}:{port}" for host, port in zip(hosts, ports, strict=True))
        skate.get(
            [
                worker_group.execute_single_async(rank, _learn, machines, size, port)
                for rank, port in enumerate(ports)
            ]
        )


def _learn(machines: str, size: int, port: int) -> None:
    _network.update(machines=machines, num_machines=size, local_listen_port=port)


class _OwnThreads:
    def __enter__(self) -> None:
        threads.limit_openmp()

    def __exit__(self, *_: object) -> None:
        return
