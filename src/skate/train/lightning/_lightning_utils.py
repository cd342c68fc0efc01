"""The integration with Lightning: an environment and strategies for its `Trainer`, and a report callback.

It works with either package of Lightning: `lightning`, or the older `pytorch_lightning`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch

from skate.air import _optional
from skate.train._storage.checkpoint import Checkpoint
from skate.train._workers.report_arguments import CheckpointUploadMode
from skate.train._workers.train_context import get_context, report
from skate.train.torch._devices import get_device

__all__ = [
    "RayDDPStrategy",
    "RayDeepSpeedStrategy",
    "RayFSDPStrategy",
    "RayLightningEnvironment",
    "RayTrainReportCallback",
    "prepare_trainer",
]


def _find_package() -> str:
    """Return the name of the installed package; the newer one if neither is installed."""
    older = importlib.util.find_spec("lightning") is None and importlib.util.find_spec("pytorch_lightning")
    return "pytorch_lightning" if older else "lightning.pytorch"


_PACKAGE = _find_package()


def _load(submodule: str = "") -> Any:
    return _optional.load(f"{_PACKAGE}{submodule}", "skate.train.lightning")


_Callback: Any = _load().Callback
_Environment: Any = _load(".plugins.environments").LightningEnvironment
_strategies: Any = _load(".strategies")


class RayLightningEnvironment(_Environment):  # type: ignore[misc]  # Any: it is optional
    """A plugin for Lightning's `Trainer` that takes the ranks from Skate's trainer, which has started the workers."""

    @property
    def creates_processes_externally(self) -> bool:
        """Whether something other than Lightning starts the workers: always."""
        return True

    def world_size(self) -> int:
        """Return the number of workers."""
        return get_context().get_world_size()

    def global_rank(self) -> int:
        """Return the rank of this worker among all workers."""
        return get_context().get_world_rank()

    def local_rank(self) -> int:
        """Return the rank of this worker among the workers of its node."""
        return get_context().get_local_rank()

    def node_rank(self) -> int:
        """Return the rank of this worker's node."""
        return get_context().get_node_rank()

    def set_world_size(self, size: int) -> None:
        """Do nothing: Lightning counts the visible devices, which are only those of this worker."""

    def set_global_rank(self, rank: int) -> None:
        """Do nothing, for the same reason."""

    def teardown(self) -> None:
        """Do nothing: the workers outlive Lightning's training."""


class _StrategyMixin:
    """The device and the sampler arguments of a worker, which Lightning would derive from the visible devices."""

    @property
    def root_device(self) -> torch.device:
        """The device that this worker trains on."""
        return get_device()

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """How Lightning splits the rows of a data loader between workers."""
        context = get_context()
        return {"num_replicas": context.get_world_size(), "rank": context.get_world_rank()}


class RayDDPStrategy(_StrategyMixin, _strategies.DDPStrategy):  # type: ignore[misc]  # Any: it is optional
    """Lightning's `DDPStrategy` for the workers of a trainer: each has the whole model.

    It takes the same arguments.
    """


class RayFSDPStrategy(_StrategyMixin, _strategies.FSDPStrategy):  # type: ignore[misc]  # Any: it is optional
    """Lightning's `FSDPStrategy` for the workers of a trainer: the model is sharded. It requires GPUs.

    It takes the same arguments.
    """


class RayDeepSpeedStrategy(_StrategyMixin, _strategies.DeepSpeedStrategy):  # type: ignore[misc]  # Any: it is optional
    """Lightning's `DeepSpeedStrategy` for the workers of a trainer. It requires `deepspeed` and GPUs.

    It takes the same arguments.
    """


def prepare_trainer(trainer: Any) -> Any:
    """Check that a Lightning `Trainer` is configured for the workers of this run, and return it.

    Args:
        trainer: Lightning's trainer.

    Raises:
        RuntimeError: Its strategy or its environment is Lightning's own, which would start processes itself.
    """
    fitting = (RayDDPStrategy, RayFSDPStrategy, RayDeepSpeedStrategy)
    if not isinstance(trainer.strategy, fitting):
        raise RuntimeError(
            f"the Lightning trainer's strategy is {type(trainer.strategy).__name__}: give it "
            "strategy=RayDDPStrategy(), RayFSDPStrategy() or RayDeepSpeedStrategy()"
        )
    environment = trainer.strategy.cluster_environment
    if not isinstance(environment, RayLightningEnvironment):
        raise RuntimeError(
            f"the Lightning trainer's environment is {type(environment).__name__}: give it "
            "plugins=[RayLightningEnvironment()]"
        )
    return trainer


class RayTrainReportCallback(_Callback):  # type: ignore[misc]  # Any: it is optional
    """A callback for Lightning's `Trainer` that reports each epoch, with a checkpoint, to Skate's trainer.

    The report contains the metrics that the module has logged, `epoch` and `step`. The checkpoint is a folder with
    `checkpoint.ckpt`, for `trainer.fit(…, ckpt_path=…)`.

    Args:
        checkpoint_upload_mode: Whether `report` waits until the checkpoint is stored, which is the default.
        validation: Whether to run the trainer's validation on each checkpoint, or its settings.
    """

    CHECKPOINT_NAME = "checkpoint.ckpt"

    def __init__(
        self, checkpoint_upload_mode: CheckpointUploadMode | None = None, validation: Any = False
    ) -> None:
        super().__init__()
        self._mode = checkpoint_upload_mode or CheckpointUploadMode.SYNC
        self._validation = validation

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Report an epoch; Lightning calls it on all workers."""
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
        metrics |= {"epoch": trainer.current_epoch, "step": trainer.global_step}

        # A strategy writes to the path of rank 0, on the node of each worker, and waits for all workers.
        context = get_context()
        own = tempfile.mkdtemp(prefix="skate_checkpoint_") if context.get_world_rank() == 0 else None
        folder = trainer.strategy.broadcast(own)
        os.makedirs(folder, exist_ok=True)
        trainer.save_checkpoint(str(Path(folder, self.CHECKPOINT_NAME)), weights_only=False)

        # The workers of a node have written to the same folder: one of them reports it.
        if context.get_local_rank():
            report(metrics, validation=self._validation)
            return
        report(
            metrics,
            checkpoint=Checkpoint.from_directory(folder),
            checkpoint_upload_mode=self._mode,
            validation=self._validation,
        )
        if self._mode is CheckpointUploadMode.SYNC:
            shutil.rmtree(folder, ignore_errors=True)
