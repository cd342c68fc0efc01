"""Reports the epochs of Lightning, and keeps its checkpoints."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from skate.train._storage.checkpoint import Checkpoint
from skate.train._workers.arguments import CheckpointUploadMode
from skate.train._workers.context import get_context, report
from skate.train.lightning._framework import pl

__all__ = ["RayTrainReportCallback"]


class RayTrainReportCallback(pl.Callback):  # type: ignore[misc]  # Any: it is optional
    """A callback for Lightning's `Trainer` that reports each epoch to Skate's, with a checkpoint.

    What is reported is what the module has logged, and `epoch` and `step`. The checkpoint is a folder with
    `checkpoint.ckpt`, for `trainer.fit(…, ckpt_path=…)`.

    Args:
        checkpoint_upload_mode: Whether `report` waits until the checkpoint is stored; it does if not given.
        validation: Whether to run the trainer's validation on each checkpoint, or with which settings.
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

        # Strategies write to the path that rank 0 has, each worker on its own node, and wait for each other.
        context = get_context()
        mine = tempfile.mkdtemp(prefix="skate_checkpoint_") if context.get_world_rank() == 0 else None
        folder = trainer.strategy.broadcast(mine)
        os.makedirs(folder, exist_ok=True)
        trainer.save_checkpoint(str(Path(folder, self.CHECKPOINT_NAME)), weights_only=False)

        # All that the workers of a node have written is in one folder: one of them hands it over.
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
