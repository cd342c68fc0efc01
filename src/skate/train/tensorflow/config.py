"""Tells workers how TensorFlow finds the others: `tf.distribute.MultiWorkerMirroredStrategy()` does the rest."""

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
    """How workers find each other: `TF_CONFIG` tells each the addresses of all."""

    @property
    def backend_cls(self) -> type[Backend]:
        """The class that does it."""
        return _TensorflowBackend

    @property
    def train_func_context(self) -> Callable[[], Any]:
        """Runs the training function so that an error of Keras's, which does not say what is wrong, does."""
        return _Explained

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules that every worker needs.

        Importing TensorFlow, and Keras with it, starts no threads; they begin with the first operation, and the process
        that workers are forked from has none. Which Keras is meant is decided in the worker.
        """
        return ("tensorflow",)


class _TensorflowBackend(Backend):
    def on_start(self, worker_group: WorkerGroup, backend_config: TensorflowConfig) -> None:
        """Let each worker choose its port, and tell all workers the addresses of all."""
        hosts = addresses.hosts(worker_group)
        ports = skate.get(
            [worker_group.execute_single_async(rank, addresses.hold, host) for rank, host in enumerate(hosts)]
        )
        cluster = [f"{host}:{port}" for host, port in zip(hosts, ports, strict=True)]
        skate.get(
            [
                worker_group.execute_single_async(rank, _learn, cluster, rank)
                for rank in range(len(worker_group))
            ]
        )


def _learn(cluster: list[str], rank: int) -> None:
    place = {"cluster": {"worker": cluster}, "task": {"type": "worker", "index": rank}}
    os.environ["TF_CONFIG"] = json.dumps(place)
    os.environ["TF_GRPC_REUSE_PORT"] = "1"  # the port is held until TensorFlow listens on it
    if (cpus := threads.cpus()) is not None:
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", str(cpus))


class _Explained:
    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ValueError) and "PerReplica" in str(error):
            error.add_note(_KERAS_3)
