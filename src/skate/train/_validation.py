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
from skate.util import state

log = logging.getLogger(__name__)

_LOOK = 1.0  # seconds that a task may take to begin before it is asked about
_OTHERS = ("num_gpus", "resources", "memory", "scheduling_strategy", "label_selector")  # that cannot be lent


class Validations:
    """The validations of a run: whatever checkpoint of its journal waits for one gets it.

    A checkpoint that is not validated when the run ends early stays pending in the run's record, and is validated
    when the run goes on.

    A task needs processors, and those who wait for its result may have them all. Then it runs on theirs.

    Args:
        config: What validates; None if nothing does.
        journal: Has the checkpoints, and takes the results.
        cpus: How many processors each worker has.
    """

    def __init__(self, config: ValidationConfig | None, journal: Journal, cpus: float = 0.0) -> None:
        self._config = config
        self._journal = journal
        self._cpus = cpus
        self._running: tuple[Any, Kept] | None = None
        self._deadline: float | None = None
        self._waiting: list[int] = []
        self._said: int | None = None  # of which checkpoint it was said that its validation waits
        self._next_look: float | None = None  # at whether the task has begun, on the monotonic clock

    # ------------------------------------------------------------ the loop's side

    @property
    def refs(self) -> list[Any]:
        """The task that runs."""
        return [] if self._running is None else [self._running[0]]

    @property
    def due(self) -> float | None:
        """When the time for it is over, or to see whether it has begun, on the monotonic clock."""
        return min((each for each in (self._deadline, self._next_look) if each is not None), default=None)

    def came(self, ref: Any) -> None:
        """The task has ended."""
        assert self._running is not None
        _, checkpoint = self._running
        self._over()
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
            self._over()
            skate.cancel(ref, force=True)
            log.warning("the validation of %s takes too long, and is given up", checkpoint.name)
            self._journal.validated(checkpoint.index, Status.VALIDATION_TIMEOUT)
        if self._running is None and self._config is not None:
            pending = next(iter(self._journal.pending), None)
            if pending is not None:
                self._begin(self._config, pending)
        if self._next_look is not None and time.monotonic() >= self._next_look:
            self._see_whether_it_has_begun()

    def _begin(self, config: ValidationConfig, checkpoint: Kept, **lent: float) -> None:
        arguments, timeout = config.arguments(checkpoint.validation or {})
        task = skate.remote(_validate)
        ref = task.options(**{**config.ray_remote_kwargs, **lent}).remote(
            config.fn, self._journal.checkpoint(checkpoint), arguments
        )
        self._running = ref, checkpoint
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._next_look = time.monotonic() + _LOOK if self._waiting and not lent else None

    def _over(self) -> None:
        self._running = self._deadline = self._next_look = None

    # ------------------------------------------------------------ who waits

    def awaited_by(self, ranks: list[int]) -> None:
        """Workers wait for validations, and do nothing meanwhile.

        Args:
            ranks: All who wait now.
        """
        if ranks and not self._waiting and self._running is not None:
            self._next_look = time.monotonic() + _LOOK
        self._waiting = ranks

    def _see_whether_it_has_begun(self) -> None:
        """Say what a task waits for that others wait for; let it run if it is the processors of those."""
        self._next_look = None
        if self._running is None or self._config is None or not self._waiting:
            return
        ref, checkpoint = self._running
        try:
            has_room, reason = _has_room(ref)
        except Exception:
            log.warning(
                "it cannot be told whether the validation of %s has begun", checkpoint.name, exc_info=True
            )
            return
        if has_room:
            return
        said = f"ranks {self._waiting} wait for the validation of {checkpoint.name}, which has not begun: {reason}"
        asked = self._config.ray_remote_kwargs
        if asked.get("num_cpus", 1) <= self._cpus * len(self._waiting) and not any(map(asked.get, _OTHERS)):
            log.info("%s. It runs on their processors", said)
            self._over()
            skate.cancel(ref, force=True)
            self._begin(self._config, checkpoint, num_cpus=0)
            return
        if self._said != checkpoint.index:
            log.warning(said)
            self._said = checkpoint.index
        self._next_look = time.monotonic() + _LOOK  # others may come to wait, and have processors too

    # ------------------------------------------------------------ the end

    def finish(self) -> None:
        """Wait until all checkpoints are validated."""
        self._waiting = []
        self.look()
        while self._running is not None:
            self._journal.standing.state = f"validating {self._running[1].name}"
            _loop.turn([self])
            self.look()

    def stop(self) -> None:
        """End the task that runs; its checkpoint stays pending."""
        if self._running is not None:
            ref, _ = self._running
            self._over()
            skate.cancel(ref, force=True)


def _has_room(ref: Any) -> tuple[bool, str]:
    """Tell whether a task has what it asks for, and if not, what it waits for."""
    found = state.get_task(ref)
    attempts = found if isinstance(found, list) else [found]
    last = attempts[-1] if attempts else None
    if last is None or last.state != "PENDING_NODE_ASSIGNMENT":
        return True, ""
    return False, state.why(ref)


def _validate(
    function: Callable[..., dict[str, Any]], checkpoint: Any, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Run in a task: return a checkpoint's metrics."""
    metrics = function(checkpoint, **arguments)
    if not isinstance(metrics, dict):
        raise TypeError(f"a validation function returns a dict of metrics, not {type(metrics).__name__}")
    return metrics
