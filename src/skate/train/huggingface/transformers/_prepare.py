"""Lets a trainer of transformers read from datasets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from skate.air import _optional
from skate.data._iteration.batches import Reiterable

# Here and not where it is used: workers are forked from a process that has imported this module.
_transformers = _optional.load("transformers.trainer", "skate.train.huggingface.transformers", "transformers")

__all__ = ["prepare_trainer"]


def prepare_trainer(trainer: Any) -> Any:
    """Let a transformers `Trainer` take what `get_dataset_shard(…).iter_torch_batches(…)` returns as its datasets.

    The batches are used as they come: `per_device_train_batch_size` and the data collator have no say, and as the
    number of rows is not known, `TrainingArguments` need `max_steps`. Datasets of other kinds are left to transformers.

    Args:
        trainer: The trainer, whose class may be a subclass of transformers'.

    Returns:
        The same trainer.

    Raises:
        TypeError: This is no trainer of transformers'.
    """
    if not isinstance(trainer, _transformers.Trainer):
        raise TypeError(f"prepare_trainer takes a transformers.Trainer, not {type(trainer).__name__}")

    class Reading(type(trainer)):  # type: ignore[misc]  # the class is known only now
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

    Reading.__name__, Reading.__qualname__ = type(trainer).__name__, type(trainer).__qualname__
    trainer.__class__ = Reading
    return trainer


def _is_batches(given: Any) -> bool:
    return isinstance(given, Reiterable)


def _loader(batches: Iterable[Any]) -> DataLoader[Any]:
    # Whole batches, so that none are made of them; and not shared out by Accelerate, which has not seen the loader:
    # each worker has its own part.
    return DataLoader(_Batches(batches), batch_size=None, collate_fn=_unchanged)


class _Batches(IterableDataset[Any]):
    """Batches of a dataset, read again in each epoch."""

    def __init__(self, batches: Iterable[Any]) -> None:
        super().__init__()
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)


def _unchanged(batch: Any) -> Any:
    return batch
