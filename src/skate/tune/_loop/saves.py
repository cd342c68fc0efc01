"""Checkpoints that workers save when a scheduler asks for them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import skate
from skate.exceptions import RayActorError, RayTaskError
from skate.train import Checkpoint

log = logging.getLogger("skate.tune")


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
            except (RayTaskError, RayActorError) as error:
                log.warning("a checkpoint could not be saved: %s", error)
                return None
            self._saved = self._store(name)
        return self._saved
