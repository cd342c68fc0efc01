"""The backend that connects workers for `tf.distribute.MultiWorkerMirroredStrategy()`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import skate
from skate.train._frameworks import addresses, threads
from skate.train.backend import Backend, BackendConfig

if TYPE_CHECKING:
    from skate.train._workers.group import WorkerGroup

__all__ = ["TensorflowConfig"]

_KERAS_3 = (
    "Keras 3 cannot fit a model with MultiWorkerMirroredStrategy: pip install tf_keras, and set TF_USE_LEGACY_KERAS=1 "
    'in the workers, RunConfig(worker_runtime_env={"env_vars": {"TF_USE_LEGACY_KERAS": "1"}}), or write the loop with '
    "strategy.run"
)


@dataclass
class TensorflowConfig(BackendConfig):
    """How workers are connected: `TF_CONFIG` contains the addresses of all."""

    @property
    def backend_cls(self) -> type[Backend]:
        """The class of the backend."""
        return _TensorflowBackend

    @property
    def train_func_context(self) -> Callable[[], Any]:
        """Adds an explanation to an unclear error of Keras."""
        return _Explained

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules that every worker needs.

        Importing TensorFlow and Keras starts no threads; the first operation does, and the process from which workers
        are forked runs none. The worker decides which version of Keras to use.
        """
        return ("tensorflow",)


class _TensorflowBackend(Backend):
    def on_start(self, worker_group: WorkerGroup, backend_config: TensorflowConfig) -> None:
        """Let each worker choose its port, and send the addresses of all to all workers."""
        hosts = addresses.hosts(worker_group)
        ports = skate.get(
            [worker_group.execute_single_async(rank, addresses.hold, host) for rank, host in enumerate(hosts)]
        )
        cluster = [f"{host}:{port}" for host, port in zip(hosts, ports, strict=True)]
        skate.get(
            [
                worker_group.execute_single_async(rank, _set_cluster, cluster, rank)
                for rank in range(len(worker_group))
            ]
        )


def _set_cluster(cluster: list[str], rank: int) -> None:
    config = {"cluster": {"worker": cluster}, "task": {"type": "worker", "index": rank}}
    os.environ["TF_CONFIG"] = json.dumps(config)
    os.environ["TF_GRPC_REUSE_PORT"] = "1"  # the port is reserved until TensorFlow listens on it
    if (cpus := threads.cpus()) is not None:
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", str(cpus))


class _Explained:
    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ValueError) and "PerReplica" in str(error):
            error.add_note(_KERAS_3)
