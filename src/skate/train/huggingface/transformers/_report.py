"""Reports what a trainer of transformers logs, and keeps its checkpoints."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch.distributed as dist

from skate.air import _optional
from skate.train._storage.checkpoint import Checkpoint
from skate.train._workers.context import get_context, report

_Base: Any = _optional.load(
    "transformers.trainer_callback", "skate.train.huggingface.transformers", "transformers"
).TrainerCallback

__all__ = ["RayTrainReportCallback"]


class RayTrainReportCallback(_Base):  # type: ignore[misc]  # Any: it is optional
    """A callback for transformers' `Trainer` that reports, each time it saves, what it has logged and what it saves.

    The reported checkpoint has transformers' own in the folder `checkpoint`, for `from_pretrained` and for
    `trainer.train(resume_from_checkpoint=…)`. How often is transformers' matter: `save_strategy` and `save_steps`.
    """

    CHECKPOINT_NAME = "checkpoint"

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report; transformers calls it on all workers, after it has saved."""
        metrics: dict[str, Any] = {}
        for entry in state.log_history:
            metrics |= entry
        metrics |= {"step": state.global_step, "epoch": state.epoch}
        source = os.path.realpath(os.path.join(args.output_dir, f"checkpoint-{state.global_step}"))
        if not _hands_over(source):
            report(metrics)
            return
        with tempfile.TemporaryDirectory(prefix="skate_checkpoint_") as folder:
            # Copied once, when it is stored, and not twice.
            Path(folder, self.CHECKPOINT_NAME).symlink_to(source, target_is_directory=True)
            report(metrics, checkpoint=Checkpoint.from_directory(folder))


def _hands_over(folder: str) -> bool:
    """Wait until all workers have saved, and tell whether this one hands the folder over: one for each there is."""
    rank = get_context().get_world_rank()
    mine = (get_context().get_node_rank(), folder) if os.path.isdir(folder) else None
    if dist.is_available() and dist.is_initialized():
        folders: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(folders, mine)
    else:
        folders = [mine]
    return mine is not None and folders.index(mine) == rank
