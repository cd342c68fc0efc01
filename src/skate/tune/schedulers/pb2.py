"""Population based bandits: population based training that chooses hyperparameters by a model.

Parker-Holder et al., Provably Efficient Online Hyperparameter Optimization with Population-Based Bandits (2020),
https://arxiv.org/abs/2002.02518. A Gaussian process learns how much training gains with which hyperparameters, and a
trial that copies another one continues with those that promise the most.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from skate.air import _optional
from skate.tune.error import TuneError
from skate.tune.schedulers._mutations import mutated_values, set_values
from skate.tune.schedulers.pbt import PopulationBasedTraining
from skate.tune.search._space import Path, copy_tree, flatten, format_path

if TYPE_CHECKING:
    from skate.tune.experiment import Trial
    from skate.tune.schedulers._gaussian_process import Step
    from skate.tune.schedulers._objective import Measurement
    from skate.tune.schedulers.pbt import Member

__all__ = ["PB2"]


class PB2(PopulationBasedTraining):
    """Let bad trials continue from checkpoints of good ones, with hyperparameters that a model chooses.

    Args:
        time_attr: The key of results that measures progress, such as "training_iteration" or "time_total_s". It must
            not decrease.
        metric: The metric to compare. The default is that of `TuneConfig`.
        mode: "min" or "max". The default is that of `TuneConfig`.
        perturbation_interval: The time between two perturbations of a trial. Each one needs checkpoints.
        hyperparam_bounds: The hyperparameters to choose, each with `[low, high]`. Dictionaries may be nested.
            Hyperparameters that a trial does not have are sampled for it.
        quantile_fraction: The fraction of trials at the bottom that copy, and at the top that are copied; 0 to 0.5.
        log_config: Whether to write files with the history of configurations, for `PopulationBasedTrainingReplay`.
        require_attrs: Whether a result without `time_attr` or `metric` is an error; otherwise it is logged once.
        synch: Whether trials wait for each other before each perturbation.
        custom_explore_fn: A function that takes the new configuration and returns the one to use.
        seed: The seed of the choice of sources and hyperparameters.

    Raises:
        ImportError: scikit-learn is not installed.
        ValueError: An argument is out of range.
        TuneError: There are no bounds.
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        hyperparam_bounds: dict[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
        custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        *,
        seed: int | None = None,
    ) -> None:
        _optional.require("sklearn", "PB2", "scikit-learn")
        if not hyperparam_bounds:
            raise TuneError("PB2 has nothing to choose: pass hyperparam_bounds.")
        self._bounds = flatten_bounds(hyperparam_bounds)
        super().__init__(
            time_attr=time_attr,
            metric=metric,
            mode=mode,
            perturbation_interval=perturbation_interval,
            hyperparam_mutations=hyperparam_bounds,
            quantile_fraction=quantile_fraction,
            resample_probability=0,
            custom_explore_fn=custom_explore_fn,
            log_config=log_config,
            require_attrs=require_attrs,
            synch=synch,
            seed=seed,
        )
        self._steps: list[Step] = []
        self._starts: dict[str, tuple[float, float, tuple[float, ...]]] = {}  # of steps that are not over
        self._round = -math.inf  # the latest time of a copied checkpoint
        self._chosen_in_round: list[tuple[float, ...]] = []

    def _fill_config(self, trial: Trial) -> None:
        present = mutated_values(trial.config, self._bounds)
        missing = {
            path: self._random.uniform(low, high)
            for path, (low, high) in self._bounds.items()
            if path not in present
        }
        set_values(trial.config, missing)
        trial.evaluated_params.update({format_path(path): value for path, value in missing.items()})

    def _record(self, member: Member, measured: Measurement, result: dict[str, Any]) -> None:
        from skate.tune.schedulers._gaussian_process import Step

        super()._record(member, measured, result)
        time, score = measured
        if not math.isfinite(score):
            self._starts.pop(member.trial.trial_id, None)
            return
        values = self._scale(member.trial.config)
        start = self._starts.get(member.trial.trial_id)
        if start is not None and start[0] < time and start[2] == values:
            self._steps.append(Step(start[0], start[1], values, (score - start[1]) / (time - start[0])))
        self._starts[member.trial.trial_id] = (time, score, values)

    def _explore(self, member: Member, source: Member) -> tuple[dict[str, Any], dict[str, str]]:
        import numpy as np

        from skate.tune.schedulers._gaussian_process import suggest

        if self._steps and source.score is not None and math.isfinite(source.score):
            pending = self._chosen_in_round if source.time <= self._round else []
            rng = np.random.default_rng(self._random.getrandbits(64))
            chosen = suggest(self._steps, pending, source.time, source.score, rng)
        else:
            chosen = tuple(self._random.random() for _ in self._bounds)
        old = mutated_values(source.trial.config, self._bounds)
        config: dict[str, Any] = copy_tree(source.trial.config)
        set_values(
            config,
            {
                path: _unscale(share, low, high, old.get(path))
                for share, (path, (low, high)) in zip(chosen, self._bounds.items(), strict=True)
            },
        )
        if self._custom_explore_fn is not None:
            config = self._custom_explore_fn(config)
            if not isinstance(config, dict):
                raise TypeError(
                    f"custom_explore_fn must return the configuration, a dict. It returned {config!r}."
                )
        return config, {}

    def _on_exploit(self, member: Member, source: Member, config: dict[str, Any]) -> None:
        values = self._scale(config)
        if source.time > self._round:
            self._round, self._chosen_in_round = source.time, []
        self._chosen_in_round.append(values)
        self._starts.pop(member.trial.trial_id, None)
        if source.score is not None and math.isfinite(source.score):
            self._starts[member.trial.trial_id] = (source.time, source.score, values)

    def _scale(self, config: dict[str, Any]) -> tuple[float, ...]:
        """Return the hyperparameters of a configuration, scaled to the unit interval."""
        values = mutated_values(config, self._bounds)
        return tuple(
            (float(values[path]) - low) / (high - low) if path in values and high > low else 0.0
            for path, (low, high) in self._bounds.items()
        )


def flatten_bounds(bounds: dict[str, Any]) -> dict[Path, tuple[float, float]]:
    """Return the bounds of nested hyperparameters by their paths.

    Raises:
        ValueError: A value is not of the form `[low, high]`.
    """
    flat = {}
    for path, pair in flatten(bounds).items():
        name = format_path(path)
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ValueError(f"hyperparam_bounds[{name!r}] must be [low, high], not {pair!r}.")
        low, high = pair
        if not low <= high:
            raise ValueError(
                f"hyperparam_bounds[{name!r}] must be [low, high] with low <= high, not {pair!r}."
            )
        flat[path] = (low, high)
    return flat


def _unscale(share: float, low: float, high: float, old: Any) -> float:
    """Return a value between bounds. It is an integer if the old value is one."""
    value = min(max(low + share * (high - low), low), high)
    if isinstance(old, int) and not isinstance(old, bool):
        return min(max(round(value), math.ceil(low)), math.floor(high))
    return value
