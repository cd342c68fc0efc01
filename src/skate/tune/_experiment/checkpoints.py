"""The checkpoints of trials: which are kept, and those that a scheduler requests."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import skate
from skate.exceptions import RayError
from skate.train import Checkpoint
from skate.tune.experiment._metrics import lookup
from skate.tune.impl.config import CheckpointConfig

log = logging.getLogger("skate.tune")


@dataclass(frozen=True)
class KeptCheckpoint:
    """A checkpoint in the folder of a trial, and the metrics that were reported with it."""

    name: str
    metrics: dict[str, Any]


def number_after(name: str) -> int:
    """Return the number of the next checkpoint after one; 0 if the user has chosen its name.

    >>> number_after("checkpoint_000004"), number_after("best")
    (5, 0)
    """
    number = name.removeprefix("checkpoint_")
    return int(number) + 1 if number.isdecimal() else 0


def select_dropped(kept: Sequence[KeptCheckpoint], config: CheckpointConfig) -> list[KeptCheckpoint]:
    """Return the checkpoints that are no longer needed.

    The best ones are needed, or the newest ones if there is no score. The latest is always needed, to resume from.

    >>> made = [KeptCheckpoint(str(i), {"loss": loss}) for i, loss in enumerate([0.1, 0.5, 0.3, 0.4])]
    >>> config = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min")
    >>> [each.name for each in select_dropped(made, config)]
    ['1']
    """
    if config.num_to_keep is None or len(kept) <= config.num_to_keep:
        return []
    needed = {each.name for each in (*rank(kept, config)[-config.num_to_keep :], kept[-1])}
    return [each for each in kept if each.name not in needed]


def rank(kept: Sequence[KeptCheckpoint], config: CheckpointConfig | None) -> list[KeptCheckpoint]:
    """Return checkpoints in the order of their scores, the best last; the oldest first without a score.

    Args:
        kept: The checkpoints, the oldest first.
        config: How they are scored.
    """
    if config is None or config.checkpoint_score_attribute is None:
        return list(kept)
    return sorted(
        kept, key=lambda each: _score(each, config)
    )  # a stable sort: the newest of equal ones is last


def _score(checkpoint: KeptCheckpoint, config: CheckpointConfig) -> float:
    value = lookup(checkpoint.metrics, config.checkpoint_score_attribute or "")
    if not isinstance(value, Real) or math.isnan(value):
        return -math.inf
    return float(value) if config.checkpoint_score_order == "max" else -float(value)


@dataclass(frozen=True)
class Saved:
    """A checkpoint, and the metrics that were reported with it."""

    checkpoint: Checkpoint | None
    metrics: dict[str, Any]


class SaveHandle:
    """A checkpoint that a worker saves.

    Args:
        reference: The name of the checkpoint, once it is saved; None for one that exists.
        store: Registers the checkpoint by its name, or returns the latest for None.
    """

    def __init__(self, reference: Any, store: Callable[[str | None], Saved]) -> None:
        self._reference = reference
        self._store = store
        self._saved: Saved | None = None

    def resolve(self, block: bool = True) -> Saved | None:
        """Return the checkpoint; None if it is not saved yet and `block` is false, or if its worker has died."""
        if self._saved is None:
            if not block and self._reference is not None and not skate.wait([self._reference], timeout=0)[0]:
                return None
            try:
                name = None if self._reference is None else skate.get(self._reference)
            except RayError as error:
                log.warning("a checkpoint could not be saved: %s", error)
                return None
            self._saved = self._store(name)
        return self._saved
