"""Lightning's strategies, on the devices and among the workers that the trainer has chosen."""

from __future__ import annotations

from typing import Any

import torch

from skate.train._workers.context import get_context
from skate.train.lightning._framework import part
from skate.train.torch._devices import get_device

__all__ = ["RayDDPStrategy", "RayDeepSpeedStrategy", "RayFSDPStrategy"]

_strategies: Any = part("strategies")


class _OfTheTrainer:
    """What the strategies take from the trainer: Lightning itself would count this worker's devices, and no others."""

    @property
    def root_device(self) -> torch.device:
        """The device that this worker trains on."""
        return get_device()

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """How Lightning shares the rows of a data loader between workers."""
        context = get_context()
        return {"num_replicas": context.get_world_size(), "rank": context.get_world_rank()}


class RayDDPStrategy(_OfTheTrainer, _strategies.DDPStrategy):  # type: ignore[misc]  # Any: it is optional
    """Lightning's `DDPStrategy`, between the workers of a trainer: each has the whole model.

    It takes the same arguments.
    """


class RayFSDPStrategy(_OfTheTrainer, _strategies.FSDPStrategy):  # type: ignore[misc]  # Any: it is optional
    """Lightning's `FSDPStrategy`, between the workers of a trainer: the model is sharded. Lightning wants GPUs for it.

    It takes the same arguments.
    """


class RayDeepSpeedStrategy(_OfTheTrainer, _strategies.DeepSpeedStrategy):  # type: ignore[misc]  # Any: it is optional
    """Lightning's `DeepSpeedStrategy`, between the workers of a trainer. It needs `deepspeed`, and GPUs.

    It takes the same arguments.
    """
