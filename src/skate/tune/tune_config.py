"""How the search space of an experiment is explored."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from skate.air import _arguments as arguments
from skate.tune.schedulers import TrialScheduler
from skate.tune.search import SearchAlgorithm, Searcher

if TYPE_CHECKING:
    from skate.tune.experiment import Trial

__all__ = ["ResumeConfig", "TuneConfig"]


@dataclass
class TuneConfig:
    """The objective, the search algorithm, the scheduler and the budget of an experiment.

    Args:
        mode: "min" or "max": whether the metric is minimized or maximized.
        metric: The metric to optimize, as it is reported.
        search_alg: Suggests the configurations; by default, random and grid search.
        scheduler: Decides which trials run, pause and stop; by default, all run to their end, in order.
        num_samples: How many times the search space is sampled, and grids are repeated; -1 for no limit.
        max_concurrent_trials: The maximum number of concurrent trials; None for as many as the resources allow.
        time_budget_s: Seconds, or a `timedelta`, after which all trials stop.
        reuse_actors: What the next trial reuses. None: the process. True: also the instance of a trainable class, whose
            `reset_config` must return True. False: nothing; each trial has a process of its own.
        trial_name_creator: Returns the name of a trial.
        trial_dirname_creator: Returns the name of a trial's folder.
        chdir_to_trial_dir: Replaced by the environment variable `RAY_CHDIR_TO_TRIAL_DIR`.

    Raises:
        DeprecationWarning: `chdir_to_trial_dir` is given.
    """

    mode: str | None = None
    metric: str | None = None
    search_alg: Searcher | SearchAlgorithm | None = None
    scheduler: TrialScheduler | None = None
    num_samples: int = 1
    max_concurrent_trials: int | None = None
    time_budget_s: float | datetime.timedelta | None = None
    reuse_actors: bool | None = None
    trial_name_creator: Callable[[Trial], str] | None = None
    trial_dirname_creator: Callable[[Trial], str] | None = None
    chdir_to_trial_dir: Any = None

    def __post_init__(self) -> None:
        if self.chdir_to_trial_dir is not None:
            raise DeprecationWarning(
                f"`chdir_to_trial_dir` is {self.chdir_to_trial_dir!r}: set the environment variable "
                "RAY_CHDIR_TO_TRIAL_DIR instead; 0 keeps trials in the folder of the program."
            )
        arguments.choice("mode", self.mode, ("min", "max", None))
        arguments.text("metric", self.metric, "the name of a metric", optional=True)
        arguments.whole(
            "num_samples", self.num_samples, low=-1, must="a positive integer, or -1 for no limit"
        )
        if self.max_concurrent_trials is not None:
            arguments.whole("max_concurrent_trials", self.max_concurrent_trials)
        if not isinstance(self.time_budget_s, datetime.timedelta):
            arguments.real(
                "time_budget_s", self.time_budget_s, above_zero=True, unit="seconds", optional=True
            )


@dataclass
class ResumeConfig:
    """What happens to the trials of a restored experiment.

    Args:
        finished: What happens to trials that have ended.
        unfinished: What happens to trials that were waiting or running.
        errored: What happens to trials that have failed.
    """

    class ResumeType(Enum):
        """RESUME from the latest checkpoint, RESTART from the beginning, or SKIP."""

        RESUME = "resume"
        RESTART = "restart"
        SKIP = "skip"

    finished: ResumeType = ResumeType.SKIP
    unfinished: ResumeType = ResumeType.RESUME
    errored: ResumeType = ResumeType.SKIP
