"""Calls to workers that have not returned yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import skate
from skate.tune._loop.worker_pool import Worker
from skate.tune.experiment import Trial


class Kind(Enum):
    """The kind of a call."""

    STEP = "step"
    STOP = "stop"


@dataclass(eq=False)
class RunningTrial:
    """A trial on a worker.

    Attributes:
        trial: The trial.
        worker: The worker.
        started: When the trial was sent to the worker.
        steps: The number of steps that the trial has completed there.
    """

    trial: Trial
    worker: Worker
    started: float
    steps: int = 0


class Calls:
    """Pending calls by reference, in the order in which they were made."""

    def __init__(self) -> None:
        self._calls: dict[Any, tuple[Kind, RunningTrial]] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, kind: Kind, running: RunningTrial, reference: Any) -> None:
        """Add a call for a trial."""
        self._calls[reference] = (kind, running)

    def forget(self, running: RunningTrial) -> None:
        """Remove the calls for a trial."""
        for reference in [each for each, (_, owner) in self._calls.items() if owner is running]:
            del self._calls[reference]

    def has_step(self, running: RunningTrial) -> bool:
        """Return whether a trial is in a step."""
        return any(kind is Kind.STEP and owner is running for kind, owner in self._calls.values())

    @property
    def stopping(self) -> int:
        """The number of trials that have been told to stop and have not stopped yet."""
        return sum(kind is Kind.STOP for kind, _ in self._calls.values())

    def take_ready(self, timeout: float) -> Iterator[tuple[Kind, RunningTrial, Any]]:
        """Wait for a call to return. Remove and yield all calls that have returned, with their references.

        Args:
            timeout: The time to wait, in seconds.
        """
        references = list(self._calls)
        ready, _ = skate.wait(references, num_returns=len(references), timeout=0)
        if not ready:
            ready, _ = skate.wait(references, num_returns=1, timeout=timeout)
        for reference in ready:
            found = self._calls.pop(reference, None)
            if found is not None:  # otherwise handling an earlier call has removed it
                yield *found, reference
