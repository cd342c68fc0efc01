"""Validates checkpoints, one after the other, in tasks beside the training."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import skate
from skate.exceptions import RayError
from skate.train import _loop
from skate.train._journal import Journal
from skate.train._ledger import Kept, Status
from skate.train._validation_config import ValidationConfig

log = logging.getLogger(__name__)


class Validations:
    """The validations of a run: whatever checkpoint of its journal waits for one gets it.

    A checkpoint that is not validated when the run ends early stays pending in the run's record, and is validated
    when the run goes on.

    Args:
        config: What validates; None if nothing does.
        journal: Has the checkpoints, and takes the results.
    """

    def __init__(self, config: ValidationConfig | None, journal: Journal) -> None:
        self._config = config
        self._journal = journal
        self._running: tuple[Any, Kept] | None = None
        self._deadline: float | None = None

    # ------------------------------------------------------------ the loop's side

    @property
    def refs(self) -> list[Any]:
        """The task that runs."""
        return [] if self._running is None else [self._running[0]]

    @property
    def due(self) -> float | None:
        """When the time for it is over, on the monotonic clock."""
        return self._deadline

    def came(self, ref: Any) -> None:
        """The task has ended."""
        assert self._running is not None
        _, checkpoint = self._running
        self._running = self._deadline = None
        try:
            metrics = skate.get(ref)
        except RayError as error:
            log.warning("the validation of %s failed, and training goes on: %s", checkpoint.name, error)
            self._journal.validated(checkpoint.index, Status.VALIDATION_FAILED)
        else:
            self._journal.validated(checkpoint.index, Status.VALIDATED, metrics)

    def look(self) -> None:
        """Give up what takes too long, and begin with the next."""
        if self._running is not None and self._deadline is not None and time.monotonic() >= self._deadline:
            ref, checkpoint = self._running
            self._running = self._deadline = None
            skate.cancel(ref, force=True)
            log.warning("the validation of %s takes too long, and is given up", checkpoint.name)
            self._journal.validated(checkpoint.index, Status.VALIDATION_TIMEOUT)
        if self._running is None and self._config is not None:
            pending = next(iter(self._journal.pending), None)
            if pending is not None:
                self._begin(self._config, pending)

    def _begin(self, config: ValidationConfig, checkpoint: Kept) -> None:
        arguments, timeout = config.arguments(checkpoint.validation or {})
        task = skate.remote(_validate)
        ref = task.options(**config.ray_remote_kwargs).remote(
            config.fn, self._journal.checkpoint(checkpoint), arguments
        )
        self._running = ref, checkpoint
        self._deadline = None if timeout is None else time.monotonic() + timeout

    # ------------------------------------------------------------ the end

    def finish(self) -> None:
        """Wait until all checkpoints are validated."""
        self.look()
        while self._running is not None:
            self._journal.standing.state = f"validating {self._running[1].name}"
            _loop.turn([self])
            self.look()

    def stop(self) -> None:
        """End the task that runs; its checkpoint stays pending."""
        if self._running is not None:
            ref, _ = self._running
            self._running = self._deadline = None
            skate.cancel(ref, force=True)


def _validate(
    function: Callable[..., dict[str, Any]], checkpoint: Any, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Run in a task: return a checkpoint's metrics."""
    metrics = function(checkpoint, **arguments)
    if not isinstance(metrics, dict):
        raise TypeError(f"a validation function returns a dict of metrics, not {type(metrics).__name__}")
    return metrics
