"""The settings of an experiment, in one place for the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from skate.tune.callback import Callback
from skate.tune.execution.placement_groups import PlacementGroupFactory
from skate.tune.impl.config import RunConfig
from skate.tune.schedulers import TrialScheduler
from skate.tune.search import SearchAlgorithm
from skate.tune.stopper import Stopper


@dataclass
class Settings:
    """What an experiment runs, and how.

    Attributes:
        trainable: A function, or a subclass of `Trainable`.
        resources_of: Returns the resources of a trial by its configuration.
        search: Creates the trials.
        scheduler: Decides about them.
        stopper: Ends trials, or all of them.
        run: Storage, failures and checkpoints.
        metric: The metric to optimize.
        max_concurrent: How many trials run at a time at most; None for no limit.
        reuse_trainables: Whether an instance of a class is kept for the next trial.
        callbacks: Receive the events.
    """

    trainable: Any
    resources_of: Callable[[dict[str, Any]], PlacementGroupFactory]
    search: SearchAlgorithm
    scheduler: TrialScheduler
    stopper: Stopper
    run: RunConfig
    metric: str | None = None
    max_concurrent: int | None = None
    reuse_trainables: bool = False
    callbacks: Sequence[Callback] = field(default_factory=list)
