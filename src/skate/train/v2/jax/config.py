"""The backend that connects workers as processes of one JAX program."""

from __future__ import annotations

import functools
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

import skate
from skate.air import _arguments as arguments
from skate.air import _optional
from skate.train._frameworks import addresses
from skate.train.backend import Backend, BackendConfig

if TYPE_CHECKING:
    from skate.train._workers.group import WorkerGroup

__all__ = ["JaxConfig"]


@dataclass
class JaxConfig(BackendConfig):
    """The devices of the workers. By default they compute on CPUs, and communicate through gloo.

    Args:
        use_tpu: Whether to compute on TPUs.
        use_gpu: Whether to compute on GPUs.

    Raises:
        ValueError: Both are true.
    """

    use_tpu: bool = False
    use_gpu: bool = False

    def __post_init__(self) -> None:
        for name in ("use_tpu", "use_gpu"):
            arguments.flag(name, getattr(self, name))
        if self.use_tpu and self.use_gpu:
            raise ValueError("`use_tpu` and `use_gpu` are both set: workers compute on one kind of device.")

    @property
    def platform(self) -> str:
        """JAX's name for the kind of device."""
        return "tpu" if self.use_tpu else "cuda" if self.use_gpu else "cpu"

    @property
    def backend_cls(self) -> type[Backend]:
        """The class of the backend."""
        return _JaxBackend

    @property
    def train_func_context(self) -> Callable[[], Any]:
        """Adds an explanation to errors of JAX about a missing build for the device."""
        return _Explained

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules that every worker needs.

        Importing JAX starts no threads and initializes no device; the first computation does, and the process from
        which workers are forked runs none.
        """
        return ("jax", "jax.numpy")


class _JaxBackend(Backend):
    def on_start(self, worker_group: WorkerGroup, backend_config: JaxConfig) -> None:
        """Choose the address of the coordinator, and let all workers join."""
        size = len(worker_group)
        hosts = addresses.hosts(worker_group)
        port = worker_group.execute_single(0, addresses.hold, hosts[0])
        skate.get(
            [
                worker_group.execute_single_async(
                    rank, _join, backend_config.platform, f"{hosts[0]}:{port}", size, rank, host
                )
                for rank, host in enumerate(hosts)
            ]
        )

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: JaxConfig) -> None:
        """Disconnect all workers before the first one ends."""
        if len(worker_group) > 1:
            worker_group.execute(_leave)


def _join(platform: str, address: str, size: int, rank: int, host: str) -> None:
    os.environ.setdefault("JAX_PLATFORMS", platform)
    if size == 1:
        return
    jax = _optional.load("jax", "JaxTrainer")
    jax.config.update("jax_platforms", os.environ["JAX_PLATFORMS"])  # JAX may have been imported already
    if platform == "cpu":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        _bind_gloo(host)
    # Without a bind address, the coordinator listens on all addresses of the machine.
    jax.distributed.initialize(address, size, rank, coordinator_bind_address=address)


def _bind_gloo(host: str) -> None:
    """Let JAX's gloo listen on the worker's address, instead of the one that the host name resolves to.

    JAX has no setting for it: its CPU client calls this function of its library without a host.
    """
    library = _optional.load("jaxlib", "JaxTrainer")._jax
    library.make_gloo_tcp_collectives = functools.partial(library.make_gloo_tcp_collectives, hostname=host)


def _leave() -> None:
    _optional.load("jax", "JaxTrainer").distributed.shutdown()


class _Explained:
    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        platform = os.environ.get("JAX_PLATFORMS")
        if error is None or platform not in ("cuda", "tpu"):
            return
        # JAX raises different exceptions if it finds no device, among them AssertionError.
        if any(frame.filename.endswith("xla_bridge.py") for frame in traceback.extract_tb(trace)):
            error.add_note(
                f"JAX has no build for {platform!r}, or finds no such device: pip install 'jax[{platform}]', or train "
                "on CPUs, with neither use_gpu nor use_tpu in ScalingConfig"
            )
