"""Validates checkpoints, one after the other, in tasks beside the training."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import skate
from skate.exceptions import RayError
from skate.train._config.validation import ValidationConfig
from skate.train._reports.ledger import Kept, Status
from skate.train._run import loop
from skate.train._run.journal import Journal

log = logging.getLogger(__name__)

_LOOK = 1.0  # seconds that a task may take to begin before something must be in its way
_START = 10.0  # seconds within which a worker for it has started, where there is room
_BEGUN = None  # what the task gives before its metrics
_RESOURCES = ("num_cpus", "num_gpus", "memory", "resources")
_NOT_LENT = ("num_gpus", "resources", "memory", "scheduling_strategy", "label_selector")


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
        self._has_begun = False
        self._submitted = 0.0  # when the task was, on the monotonic clock
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
        """The task has begun, or has ended."""
        assert self._running is not None
        _, checkpoint = self._running
        try:
            metrics = skate.get(next(ref))
        except RayError as error:
            self._over()
            log.warning("the validation of %s failed, and training goes on: %s", checkpoint.name, error)
            self._journal.validated(checkpoint.index, Status.VALIDATION_FAILED)
            return
        if metrics is _BEGUN:
            self._has_begun, self._next_look = True, None
            return
        self._over()
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
        self._running, self._has_begun, self._submitted = (ref, checkpoint), False, time.monotonic()
        self._deadline = None if timeout is None else self._submitted + timeout
        self._next_look = self._submitted + _LOOK if self._waiting and not lent else None

    def _over(self) -> None:
        self._running = self._deadline = self._next_look = None

    # ------------------------------------------------------------ who waits

    def awaited_by(self, ranks: list[int]) -> None:
        """Workers wait for validations, and do nothing meanwhile.

        Args:
            ranks: All who wait now.
        """
        if ranks and not self._waiting and self._running is not None and not self._has_begun:
            self._next_look = time.monotonic() + _LOOK
        self._waiting = ranks

    def _see_whether_it_has_begun(self) -> None:
        """Say what a task waits for that others wait for; let it run if it is the processors of those."""
        self._next_look = None
        if self._running is None or self._config is None or not self._waiting:
            return
        ref, checkpoint = self._running
        if skate.wait([ref], timeout=0)[0]:
            return  # it has begun just now
        asked = {"num_cpus": 1, **self._config.ray_remote_kwargs}
        free = skate.available_resources().get("CPU", 0.0)
        now = time.monotonic()
        if free >= asked["num_cpus"] and now < self._submitted + _START:
            self._next_look = now + _LOOK  # its worker starts, it seems
            return
        said = (
            f"ranks {self._waiting} wait for the validation of {checkpoint.name}, which has not begun: it asks for "
            f"{ {each: asked[each] for each in _RESOURCES if each in asked} }, and {free:g} CPUs are free"
        )
        if asked["num_cpus"] <= self._cpus * len(self._waiting) and not any(map(asked.get, _NOT_LENT)):
            log.info("%s. It runs on their processors", said)
            self._over()
            skate.cancel(ref, force=True)
            self._begin(self._config, checkpoint, num_cpus=0)
            return
        if self._said != checkpoint.index:
            log.warning(said)
            self._said = checkpoint.index
        self._next_look = now + _LOOK  # others may come to wait, and have processors too

    # ------------------------------------------------------------ the end

    def finish(self) -> None:
        """Wait until all checkpoints are validated."""
        self._waiting = []
        self.look()
        while self._running is not None:
            self._journal.standing.state = f"validating {self._running[1].name}"
            loop.turn([self])
            self.look()

    def stop(self) -> None:
        """End the task that runs; its checkpoint stays pending."""
        if self._running is not None:
            ref, _ = self._running
            self._over()
            skate.cancel(ref, force=True)


def _validate(
    function: Callable[..., dict[str, Any]], checkpoint: Any, arguments: Mapping[str, Any]
) -> Iterator[dict[str, Any] | None]:
    """Run in a task: say that it has begun, then give a checkpoint's metrics."""
    yield _BEGUN
    metrics = function(checkpoint, **arguments)
    if not isinstance(metrics, dict):
        raise TypeError(f"a validation function returns a dict of metrics, not {type(metrics).__name__}")
    yield metrics
