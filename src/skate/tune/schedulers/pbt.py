"""Population based training, and the replay of what it has found.

Jaderberg et al., Population Based Training of Neural Networks (2017), https://arxiv.org/abs/1711.09846. Trials train
side by side. From time to time, those of the bottom quantile copy the checkpoint of one in the top quantile (exploit)
and continue with its hyperparameters, mutated (explore).
"""

from __future__ import annotations

import logging
import math
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skate.tune.error import TuneError
from skate.tune.experiment import Trial
from skate.tune.result import TRAINING_ITERATION
from skate.tune.schedulers._controller import (
    PendingCheckpoint,
    experiment_path_of,
    exploit,
    waiting_trials,
)
from skate.tune.schedulers._mutations import explore, fill_missing, flatten_mutations, mutated_values
from skate.tune.schedulers._objective import Measurement, ObjectiveScheduler, make_random
from skate.tune.schedulers._policy_log import PolicyStep, append_step, read_schedule
from skate.tune.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler
from skate.tune.search._space import flatten, format_path
from skate.tune.search.variant_generator import format_vars

if TYPE_CHECKING:
    from skate.train import Checkpoint
    from skate.tune.schedulers._controller import TuneController

__all__ = ["PopulationBasedTraining", "PopulationBasedTrainingReplay"]

logger = logging.getLogger(__name__)

FEW_CHECKPOINTS = 2  # so few that the one to copy may be deleted before it is read


@dataclass(eq=False)
class Member:
    """A trial of the population."""

    trial: Trial
    tag: str  # of the trial, before it was perturbed
    # At the end of the last perturbation interval:
    score: float | None = None
    time: float = 0.0
    perturbed_at: float = 0.0
    result: dict[str, Any] | None = None
    latest_score: float = math.nan
    checkpoint: Checkpoint | PendingCheckpoint | None = None  # of a member of the top quantile

    @property
    def rank(self) -> float:
        """The score by which members are compared. NaN is the worst."""
        return -math.inf if math.isnan(self.latest_score) else self.latest_score

    @property
    def iteration(self) -> int:
        """The training iteration of the last result."""
        return int((self.result or {}).get(TRAINING_ITERATION, 0))

    def __getstate__(self) -> dict[str, Any]:
        # A checkpoint that is being saved cannot be pickled: the trial's newest one takes its place.
        pending = isinstance(self.checkpoint, PendingCheckpoint)
        return {**self.__dict__, "checkpoint": self.trial.checkpoint if pending else self.checkpoint}


class PopulationBasedTraining(ObjectiveScheduler):
    """Let bad trials continue from checkpoints of good ones, with mutated hyperparameters.

    All trials of the experiment are the population. If there are more than can run at a time, they take turns.

    Args:
        time_attr: The key of results that measures progress, such as "training_iteration" or "time_total_s". It must
            not decrease.
        metric: The metric to compare. The default is that of `TuneConfig`.
        mode: "min" or "max". The default is that of `TuneConfig`.
        perturbation_interval: The time between two perturbations of a trial. Each one needs checkpoints.
        burn_in_period: The time before the first perturbation.
        hyperparam_mutations: The hyperparameters to mutate. A list or tuple has the values to step through; a search
            space such as `uniform(0, 1)`, or a function without arguments, samples numbers, which are otherwise
            multiplied by one of `perturbation_factors`, within the bounds of the space. Dictionaries may be nested.
            Hyperparameters that a trial does not have are sampled for it.
        quantile_fraction: The fraction of trials at the bottom that copy, and at the top that are copied; 0 to 0.5.
        resample_probability: The probability that a hyperparameter is resampled.
        perturbation_factors: The factors to choose from for numbers.
        custom_explore_fn: A function that takes the mutated configuration and returns the one to use.
        log_config: Whether to write files with the history of configurations, for `PopulationBasedTrainingReplay`.
        require_attrs: Whether a result without `time_attr` or `metric` is an error; otherwise it is logged once.
        synch: Whether trials wait for each other before each perturbation.
        seed: The seed of the choice of sources and mutations.

    Raises:
        ValueError: An argument is out of range.
        TypeError: A value of `hyperparam_mutations` is not a distribution.
        TuneError: There is neither `hyperparam_mutations` nor `custom_explore_fn`.
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        burn_in_period: float = 0.0,
        hyperparam_mutations: dict[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        resample_probability: float = 0.25,
        perturbation_factors: Sequence[float] = (1.2, 0.8),
        custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(time_attr, metric, mode)
        if not hyperparam_mutations and custom_explore_fn is None:
            raise TuneError(
                f"{type(self).__name__} has nothing to mutate: pass hyperparam_mutations or custom_explore_fn."
            )
        if not 0 <= quantile_fraction <= 0.5:
            raise ValueError(f"quantile_fraction must be between 0 and 0.5, not {quantile_fraction!r}.")
        if not perturbation_interval > 0:
            raise ValueError(f"perturbation_interval must be greater than 0, not {perturbation_interval!r}.")
        if not 0 <= resample_probability <= 1:
            raise ValueError(f"resample_probability must be between 0 and 1, not {resample_probability!r}.")
        if not perturbation_factors:
            raise ValueError("perturbation_factors must have at least one factor.")
        self._perturbation_interval = perturbation_interval
        self._burn_in_period = burn_in_period
        self._mutations = flatten_mutations(hyperparam_mutations or {})
        self._quantile_fraction = quantile_fraction
        self._resample_probability = resample_probability
        self._perturbation_factors = tuple(perturbation_factors)
        self._custom_explore_fn = custom_explore_fn
        self._log_config = log_config
        self._require_attrs = require_attrs
        self._synch = synch
        self._next_sync = max(perturbation_interval, burn_in_period)
        self._random = make_random(seed)
        self._members: dict[str, Member] = {}
        self._has_warned = False
        self._num_checkpoints = 0
        self._num_perturbations = 0

    def on_trial_add(self, tune_controller: TuneController, trial: Trial) -> None:
        """Add the trial to the population, and sample the hyperparameters that it does not have.

        Raises:
            ValueError: The experiment has a search algorithm, which would not know about mutations.
        """
        from skate.tune.search.search_generator import SearchGenerator

        if isinstance(tune_controller.search_alg, SearchGenerator):
            raise ValueError(
                f"{type(self).__name__} changes configurations itself: remove search_alg from TuneConfig."
            )
        super().on_trial_add(tune_controller, trial)
        self._warn_of_few_checkpoints(trial)
        member = self._members.get(trial.trial_id)
        if member is not None:
            member.trial = trial
            return
        self._members[trial.trial_id] = Member(trial, trial.experiment_tag)
        self._fill_config(trial)

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        """After each perturbation interval, save the trial if it is good, and replace it if it is bad.

        Raises:
            RuntimeError: The result lacks the metric or the time, and `require_attrs` is true.
        """
        missing = self._missing_key(result)
        if missing is not None and self._require_attrs:
            raise RuntimeError(
                f"{self._describe_missing(missing, result)} To ignore such results, pass require_attrs=False."
            )
        measured = self._measure(result)
        if measured is None:
            return TrialScheduler.CONTINUE
        member = self._members[trial.trial_id]
        # Others are compared with the newest score: an old one would make them look worse than they are.
        member.latest_score = measured.score
        if measured.time < self._burn_in_period:
            return TrialScheduler.CONTINUE
        if measured.time - member.perturbed_at < self._perturbation_interval:
            return TrialScheduler.CONTINUE
        self._record(member, measured, result)
        if self._synch:
            return self._on_sync_result(tune_controller, member)
        member.perturbed_at = measured.time
        others_wait = next(waiting_trials(tune_controller), None) is not None
        if self._perturb(tune_controller, member, *self._quantiles()):
            return TrialScheduler.NOOP
        return TrialScheduler.PAUSE if others_wait else TrialScheduler.CONTINUE

    def on_trial_complete(
        self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]
    ) -> None:
        """Remove the trial from the population."""
        self.on_trial_remove(tune_controller, trial)

    def on_trial_error(self, tune_controller: TuneController, trial: Trial) -> None:
        """Remove the trial from the population."""
        self.on_trial_remove(tune_controller, trial)

    def on_trial_remove(self, tune_controller: TuneController, trial: Trial) -> None:
        """Remove the trial from the population, which may have waited for it."""
        if self._members.pop(trial.trial_id, None) is None or not self._synch:
            return
        live = self._live_members()
        # The last trial has no other trial to copy, but it still waits for the next perturbation.
        if live and all(member.time >= self._next_sync for member in live):
            self._perturb_all(tune_controller, max(member.time for member in live))

    def choose_trial_to_run(self, tune_controller: TuneController) -> Trial | None:
        """Return the waiting trial that has trained the least. With `synch`, those that are ahead wait."""
        candidates = [
            member
            for trial in waiting_trials(tune_controller)
            if (member := self._members.get(trial.trial_id)) is not None
            and (not self._synch or member.time < self._next_sync)
        ]
        return min(candidates, key=lambda member: member.time).trial if candidates else None

    def debug_string(self) -> str:
        """Return how many checkpoints and perturbations there were."""
        return (
            f"{type(self).__name__}: {self._num_checkpoints} checkpoints, {self._num_perturbations} perturbs"
        )

    def _fill_config(self, trial: Trial) -> None:
        """Sample the hyperparameters that a trial does not have."""
        trial.evaluated_params.update(fill_missing(trial.config, self._mutations, self._random))

    def _record(self, member: Member, measured: Measurement, result: dict[str, Any]) -> None:
        """Record the result of a trial that will be compared with others."""
        member.score, member.time, member.result = measured.score, measured.time, result

    def _explore(self, member: Member, source: Member) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the configuration with which a trial continues from its source, and what was mutated."""
        return explore(
            source.trial.config,
            self._mutations,
            self._resample_probability,
            self._perturbation_factors,
            self._custom_explore_fn,
            self._random,
        )

    def _on_exploit(self, member: Member, source: Member, config: dict[str, Any]) -> None:
        """Handle a trial that has copied another one and has a new configuration."""

    def _on_sync_result(self, tune_controller: TuneController, member: Member) -> str:
        """Perturb all trials when the last one has arrived."""
        others = [other for other in self._live_members() if other is not member]
        if any(other.time < self._next_sync for other in others):
            return TrialScheduler.PAUSE
        exploited = self._perturb_all(tune_controller, member.time)
        return TrialScheduler.NOOP if member.trial.trial_id in exploited else TrialScheduler.PAUSE

    def _perturb_all(self, tune_controller: TuneController, time: float) -> set[str]:
        """Perturb all trials, and return those that have copied others."""
        lower, upper = self._quantiles()
        live = self._live_members()
        # The good ones first, so that the bad ones find checkpoints.
        ordered = upper + [member for member in live if member not in upper and member not in lower] + lower
        exploited = set()
        for member in ordered:
            member.perturbed_at = time
            if self._perturb(tune_controller, member, lower, upper):
                exploited.add(member.trial.trial_id)
        times = [member.time for member in live]
        self._next_sync = max(self._next_sync + self._perturbation_interval, max(times))
        if min(times) >= self._next_sync:  # all reported later than they were expected
            self._next_sync = max(times) + self._perturbation_interval
        return exploited

    def _perturb(
        self, tune_controller: TuneController, member: Member, lower: list[Member], upper: list[Member]
    ) -> bool:
        """Save a trial of the top quantile, and replace one of the bottom quantile; return whether it was replaced."""
        member.checkpoint = None
        if member in upper:
            self._num_checkpoints += 1
            trial = member.trial
            if trial.status == Trial.PAUSED:
                member.checkpoint = trial.checkpoint
            else:
                member.checkpoint = tune_controller._schedule_trial_save(trial, result=member.result)
        if member not in lower:
            return False
        sources = [source for source in upper if source.checkpoint is not None]
        if not sources:
            logger.info("No trial of the top quantile has a checkpoint: %s continues as it is.", member.trial)
            return False
        return self._exploit(tune_controller, member, self._random.choice(sources))

    def _exploit(self, tune_controller: TuneController, member: Member, source: Member) -> bool:
        """Let a trial continue from the checkpoint of another one; return whether it does."""
        config, operations = self._explore(member, source)
        tag = make_tag(member.tag, mutated_values(config, self._mutations))
        if not _continue_from(tune_controller, member.trial, source.trial, config, source.checkpoint, tag):
            logger.info("%s has saved no checkpoint: %s continues as it is.", source.trial, member.trial)
            return False
        changes = _describe_changes(source.trial.config, config, self._mutations, operations)
        logger.info(
            "%s (score %s) continues from %s (score %s) with %s.",
            member.trial,
            member.score,
            source.trial,
            source.score,
            changes or "the same hyperparameters",
        )
        folder = experiment_path_of(tune_controller)
        if self._log_config and folder is not None:
            step = PolicyStep(
                member.tag, source.tag, member.iteration, source.iteration, source.trial.config, config
            )
            append_step(folder, member.trial.trial_id, source.trial.trial_id, step)
        member.time, member.perturbed_at = source.time, source.perturbed_at
        self._num_perturbations += 1
        self._on_exploit(member, source, config)
        return True

    def _live_members(self) -> list[Member]:
        return [member for member in self._members.values() if not member.trial.is_finished()]

    def _quantiles(self) -> tuple[list[Member], list[Member]]:
        """Return the trials at the bottom and at the top; none if there are too few to compare."""
        ranked = sorted(
            (member for member in self._live_members() if member.score is not None),
            key=lambda member: member.rank,
        )
        size = min(math.ceil(len(ranked) * self._quantile_fraction), len(ranked) // 2)
        return (ranked[:size], ranked[-size:]) if size else ([], [])

    def _warn_of_few_checkpoints(self, trial: Trial) -> None:
        config = trial.checkpoint_config
        kept = config.num_to_keep if config is not None else None
        if kept is not None and kept <= FEW_CHECKPOINTS and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"CheckpointConfig(num_to_keep={kept}) may delete checkpoints before other trials have copied them: "
                f"keep more than {FEW_CHECKPOINTS} with {type(self).__name__}.",
                stacklevel=2,
            )


class PopulationBasedTrainingReplay(FIFOScheduler):
    """Train one trial with the schedule of configurations that population based training has found.

    Args:
        policy_file: The file `pbt_policy_<trial id>.txt` in the folder of that experiment.

    Raises:
        ValueError: There is no such file, or it is not a policy file.
    """

    def __init__(self, policy_file: str | os.PathLike[str]) -> None:
        super().__init__()
        path = Path(policy_file).expanduser()
        if not path.exists():
            raise ValueError(
                f"There is no policy file {str(path)!r}: was the experiment run with log_config=True?"
            )
        self.policy_file = path.as_posix()
        initial_config, self._policy = read_schedule(path)
        self.experiment_tag = f"replay_{path.name}"
        self.config = initial_config or {}
        self.current_config = self.config
        self._trial_id: str | None = None
        self._current_step = 0
        self._num_perturbations = 0

    def on_trial_add(self, tune_controller: TuneController, trial: Trial) -> None:
        """Give the trial the first configuration of the schedule.

        Raises:
            ValueError: There is more than one trial, or no configuration.
        """
        if self._trial_id is not None:
            if trial.trial_id != self._trial_id:
                raise ValueError(
                    "PopulationBasedTrainingReplay trains one trial, but a second one was added: set num_samples=1."
                )
            return
        self._trial_id = trial.trial_id
        if not self._policy:
            if not trial.config:
                raise ValueError(
                    f"{self.policy_file} has no configurations, and neither has the trial: pass param_space to Tuner."
                )
            self.config = self.current_config = trial.config
        elif trial.config:
            logger.warning("The schedule of %s replaces the configuration of %s.", self.policy_file, trial)
        trial.set_config(self.config)

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        """Change the configuration at the times of the schedule."""
        if TRAINING_ITERATION not in result:
            return TrialScheduler.CONTINUE
        self._current_step = result[TRAINING_ITERATION]
        due = [config for iteration, config in self._policy if iteration <= self._current_step]
        if not due:
            return TrialScheduler.CONTINUE
        checkpoint = tune_controller._schedule_trial_save(trial, result=result)
        tag = make_tag(self.experiment_tag, flatten(due[-1]))
        if not _continue_from(tune_controller, trial, trial, due[-1], checkpoint, tag):
            logger.warning("%s has saved no checkpoint, so its configuration cannot change yet.", trial)
            return TrialScheduler.CONTINUE
        del self._policy[: len(due)]
        self.current_config = due[-1]
        self._num_perturbations += 1
        return TrialScheduler.NOOP

    def debug_string(self) -> str:
        """Return the progress of the replay."""
        return f"PopulationBasedTraining replay: Step {self._current_step}, perturb {self._num_perturbations}"


def make_tag(tag: str, values: dict[tuple[Any, ...], Any]) -> str:
    """Return the tag of a trial with perturbed hyperparameters."""
    return f"{tag}@perturbed[{format_vars(values)}]"


def _continue_from(
    tune_controller: TuneController,
    trial: Trial,
    source: Trial,
    config: dict[str, Any],
    checkpoint: Checkpoint | PendingCheckpoint | None,
    tag: str,
) -> bool:
    """Let a trial continue from a checkpoint with another configuration and tag; return whether it does."""
    old_tag = trial.experiment_tag
    trial.set_experiment_tag(tag)  # first, for controllers that record the trial when it changes
    if exploit(tune_controller, trial, source, config, checkpoint):
        return True
    trial.set_experiment_tag(old_tag)
    return False


def _describe_changes(
    old: dict[str, Any], new: dict[str, Any], mutations: dict[Any, Any], operations: dict[str, str]
) -> str:
    before, after = mutated_values(old, mutations), mutated_values(new, mutations)
    changes = []
    for path, value in after.items():
        operation = operations.get(format_path(path))
        changes.append(
            f"{format_path(path)}: {before.get(path)} -> {value}" + (f" ({operation})" if operation else "")
        )
    return ", ".join(changes)
