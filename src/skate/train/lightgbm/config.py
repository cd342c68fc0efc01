"""The backend that connects workers, so that LightGBM trains one model on all of them."""

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
    """Return the network parameters for `lightgbm.train`.

    They are `machines`, `num_machines` and `local_listen_port`. With one worker, the result is empty.
    """
    return dict(_network)


@dataclass
class LightGBMConfig(BackendConfig):
    """How workers are connected: each listens on a port, and knows the ports of all."""

    @property
    def backend_cls(self) -> type[Backend]:
        """The class of the backend."""
        return _LightGBMBackend

    @property
    def train_func_context(self) -> Callable[[], Any]:
        """Limits the threads of the training function to the worker's CPUs."""
        return _LimitedThreads

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules that every worker needs. Importing LightGBM starts no threads, so forking afterwards is safe."""
        return ("lightgbm", "pandas")


class _LightGBMBackend(Backend):
    def on_training_start(self, worker_group: WorkerGroup, backend_config: LightGBMConfig) -> None:
        """Let each worker choose its port, and send the ports of all to all workers."""
        size = len(worker_group)
        if size == 1:
            return
        ports = worker_group.execute(addresses.claim)
        hosts = addresses.hosts(worker_group)
        machines = ",".join(f"{host}:{port}" for host, port in zip(hosts, ports, strict=True))
        skate.get(
            [
                worker_group.execute_single_async(rank, _set_network, machines, size, port)
                for rank, port in enumerate(ports)
            ]
        )


def _set_network(machines: str, size: int, port: int) -> None:
    _network.update(machines=machines, num_machines=size, local_listen_port=port)


class _LimitedThreads:
    def __enter__(self) -> None:
        threads.limit_openmp()

    def __exit__(self, *_: object) -> None:
        return
