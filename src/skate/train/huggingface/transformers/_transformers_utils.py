"""The integration with the `Trainer` of transformers: datasets as its input, and a report callback."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset

from skate.air import _optional
from skate.data._iteration.batches import Reiterable
from skate.train._storage.checkpoint import Checkpoint
from skate.train._workers.train_context import get_context, report

# Imported with this module, because workers are forked from a process that has imported it.
_transformers = _optional.load("transformers.trainer", "skate.train.huggingface.transformers", "transformers")
_TrainerCallback: Any = _optional.load(
    "transformers.trainer_callback", "skate.train.huggingface.transformers", "transformers"
).TrainerCallback

__all__ = ["RayTrainReportCallback", "prepare_trainer"]


def prepare_trainer(trainer: Any) -> Any:
    """Let a transformers `Trainer` use the result of `get_dataset_shard(…).iter_torch_batches(…)` as its datasets.

    The trainer uses the batches unchanged: `per_device_train_batch_size` and the data collator have no effect, and
    since the number of rows is unknown, `TrainingArguments` needs `max_steps`. Datasets of other kinds work as before.

    Args:
        trainer: The trainer, or one of a subclass.

    Returns:
        The same trainer.

    Raises:
        TypeError: It is no trainer of transformers.
    """
    if not isinstance(trainer, _transformers.Trainer):
        raise TypeError(f"prepare_trainer takes a transformers.Trainer, not {type(trainer).__name__}")

    class StreamingTrainer(type(trainer)):  # type: ignore[misc]  # the class is known only now
        def get_train_dataloader(self) -> Any:
            if _is_batches(self.train_dataset):
                return _loader(self.train_dataset)
            return super().get_train_dataloader()

        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            given = eval_dataset if eval_dataset is not None else self.eval_dataset
            if isinstance(given, str) and isinstance(self.eval_dataset, dict):
                given = self.eval_dataset[given]
            if _is_batches(given):
                return _loader(given)
            return super().get_eval_dataloader(eval_dataset)

    kind = type(trainer)
    StreamingTrainer.__name__, StreamingTrainer.__qualname__ = kind.__name__, kind.__qualname__
    trainer.__class__ = StreamingTrainer
    return trainer


def _is_batches(given: Any) -> bool:
    return isinstance(given, Reiterable)


def _loader(batches: Iterable[Any]) -> DataLoader[Any]:
    # The batches are complete, and already split between workers: neither torch nor Accelerate may do either again.
    return DataLoader(_Batches(batches), batch_size=None, collate_fn=_unchanged)


class _Batches(IterableDataset[Any]):
    """The batches of a dataset, which are read again in each epoch."""

    def __init__(self, batches: Iterable[Any]) -> None:
        super().__init__()
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)


def _unchanged(batch: Any) -> Any:
    return batch


class RayTrainReportCallback(_TrainerCallback):  # type: ignore[misc]  # Any: it is optional
    """A callback for transformers' `Trainer` that reports, at each save, the logged metrics and the saved checkpoint.

    The reported checkpoint contains transformers' own in the folder `checkpoint`, for `from_pretrained` and for
    `trainer.train(resume_from_checkpoint=…)`. `save_strategy` and `save_steps` of transformers set how often it saves.
    """

    CHECKPOINT_NAME = "checkpoint"

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report; transformers calls it on all workers after each save."""
        metrics: dict[str, Any] = {}
        for entry in state.log_history:
            metrics |= entry
        metrics |= {"step": state.global_step, "epoch": state.epoch}
        source = os.path.realpath(os.path.join(args.output_dir, f"checkpoint-{state.global_step}"))
        if not _reports_folder(source):
            report(metrics)
            return
        with tempfile.TemporaryDirectory(prefix="skate_checkpoint_") as folder:
            # A link, so that the files are copied only once, by the upload.
            Path(folder, self.CHECKPOINT_NAME).symlink_to(source, target_is_directory=True)
            report(metrics, checkpoint=Checkpoint.from_directory(folder))


def _reports_folder(folder: str) -> bool:
    """Wait until all workers have saved; return whether this worker reports the folder, as one of them does."""
    rank = get_context().get_world_rank()
    own = (get_context().get_node_rank(), folder) if os.path.isdir(folder) else None
    if dist.is_available() and dist.is_initialized():
        folders: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(folders, own)
    else:
        folders = [own]
    return own is not None and folders.index(own) == rank
