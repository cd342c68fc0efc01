"""The interface of searchers, which suggest configurations and learn from results."""

from __future__ import annotations

import logging
import os
import pickle
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from skate.tune.experiment._metrics import lookup
from skate.tune.result import DONE
from skate.tune.search._persistence import newest_file, read_state, write_state

if TYPE_CHECKING:
    from skate.tune.experiment.trial import Trial

__all__ = ["Searcher"]

logger = logging.getLogger(__name__)

Suggestion: TypeAlias = dict[str, Any] | Literal["FINISHED"] | None
Names: TypeAlias = str | list[str] | None

_MODES = ("min", "max")


class Searcher:
    """Suggests configurations of trials, one at a time, and receives their results.

    A subclass overrides `suggest` and `on_trial_complete`. Its attributes are its state, which is saved with
    the experiment; override `save` and `restore` if they cannot be pickled.

    Args:
        metric: The metric to optimize, or several.
        mode: "min" or "max", or one of them for each metric.

    Raises:
        TypeError: Only one of metric and mode is a list.
        ValueError: A mode is neither "min" nor "max", or the lists have different lengths.
    """

    FINISHED: ClassVar[Literal["FINISHED"]] = "FINISHED"
    CKPT_FILE_TMPL: ClassVar = "searcher-state-{}.pkl"

    _metric: Names = None
    _mode: Names = None

    def __init__(self, metric: Names = None, mode: Names = None) -> None:
        check_objective(metric, mode)
        self._metric = metric
        self._mode = mode

    @property
    def metric(self) -> Names:
        """The metric to optimize, or several."""
        return self._metric

    @property
    def mode(self) -> Names:
        """The direction, "min" or "max", or one for each metric."""
        return self._mode

    def set_search_properties(self, metric: Names, mode: Names, config: dict[str, Any], **spec: Any) -> bool:
        """Set the metric, the mode and the search space of an experiment.

        Args:
            metric: The metric to optimize.
            mode: "min" or "max".
            config: The search space.
            **spec: Additional properties of the experiment.

        Returns:
            Whether the searcher uses them; False if it has its own search space.
        """
        return False

    def suggest(self, trial_id: str) -> Suggestion:
        """Return a configuration for a trial.

        Args:
            trial_id: The trial, to which later notifications refer.

        Returns:
            The configuration; None if there is none now, as when results are needed first; FINISHED if there
            will be no more.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define suggest().")

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Handle an intermediate result of a trial.

        Args:
            trial_id: The trial.
            result: The result, in which the metric may be missing, NaN or infinite.
        """

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Handle the end of a trial.

        Args:
            trial_id: The trial.
            result: The last result, if there is one; the metric may be missing, NaN or infinite.
            error: Whether the trial failed.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define on_trial_complete().")

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        """Add a configuration that was evaluated elsewhere.

        Args:
            parameters: The configuration.
            value: The value of the metric.
            error: Whether the evaluation failed.
            pruned: Whether the evaluation was stopped early.
            intermediate_values: Values of the metric before the last.

        Raises:
            NotImplementedError: The searcher does not support this.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot use points that were evaluated elsewhere.")

    def add_evaluated_trials(self, trials_or_analysis: Any, metric: str) -> None:
        """Add the trials of another experiment.

        Args:
            trials_or_analysis: A trial, several trials, or an object with `trials`, such as an ExperimentAnalysis.
            metric: The metric whose last value is the value of a trial.

        Raises:
            NotImplementedError: The searcher does not support this.
            TypeError: The first argument has another type.
        """
        found = 0
        for trial in _trials(trials_or_analysis):
            value = lookup(trial.last_result, metric)
            if value is None:
                continue
            done = bool(trial.last_result.get(DONE))
            pruned = trial.status == trial.TERMINATED and not done
            found += trial.status == trial.TERMINATED and done
            self.add_evaluated_point(trial.config, value, error=trial.status == trial.ERROR, pruned=pruned)
        if not found:
            logger.warning("No completed trial has the metric %r: check its name.", metric)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Set the number of trials that may run at the same time.

        Returns:
            Whether the searcher limits them itself; False if a ConcurrencyLimiter has to.
        """
        return False

    def get_state(self) -> dict[str, Any]:
        """Return the state, for `set_state`."""
        return self.__dict__.copy()

    def set_state(self, state: dict[str, Any]) -> None:
        """Set the state to one that `get_state` returned."""
        self.__dict__.update(state)

    def save(self, checkpoint_path: str) -> None:
        """Write the state to a file."""
        write_state(self.get_state(), checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        """Read the state from a file that `save` wrote."""
        self.set_state(read_state(checkpoint_path))

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Write the state to a file in the folder of an experiment; warn if it cannot be saved.

        Args:
            checkpoint_dir: The folder.
            session_str: Part of the name of the file; the last one in order is restored.
        """
        target = Path(checkpoint_dir) / self.CKPT_FILE_TMPL.format(session_str)
        temporary = target.with_name(f".{uuid.uuid4().hex}-{target.name}")
        try:
            self.save(os.fspath(temporary))
            if temporary.exists():
                temporary.replace(target)
        except (NotImplementedError, pickle.PicklingError, TypeError, AttributeError) as error:
            logger.warning(
                "%s was not saved, so the experiment cannot be resumed: %s. Define save() and restore().",
                type(self).__name__,
                error,
            )
        finally:
            temporary.unlink(missing_ok=True)

    def restore_from_dir(self, checkpoint_dir: str) -> None:
        """Read the state from the folder of an experiment.

        Raises:
            RuntimeError: The folder has no state of a searcher.
        """
        found = newest_file(checkpoint_dir, self.CKPT_FILE_TMPL.format("*"))
        if found is None:
            raise RuntimeError(
                f"{checkpoint_dir} has no file {self.CKPT_FILE_TMPL.format('*')}: nothing to restore."
            )
        self.restore(os.fspath(found))


def check_objective(metric: Names, mode: Names) -> None:
    """Check a metric and a mode, each of which may be missing.

    Raises:
        TypeError: Only one of them is a list.
        ValueError: A mode is neither "min" nor "max", or the lists have different lengths.
    """
    modes = [] if mode is None else [mode] if isinstance(mode, str) else list(mode)
    for each in modes:
        if each not in _MODES:
            raise ValueError(f'mode must be "min" or "max", got {each!r}.')
    if metric and mode:
        if isinstance(metric, str) != isinstance(mode, str):
            raise TypeError(
                f"metric and mode must both be strings or both be lists, got {metric!r} and {mode!r}."
            )
        if not isinstance(metric, str) and len(metric) != len(modes):
            raise ValueError(f"metric and mode need the same length, got {metric!r} and {mode!r}.")


def _trials(trials_or_analysis: Any) -> Iterable[Trial]:
    from skate.tune.experiment.trial import Trial

    if isinstance(trials_or_analysis, Trial):
        return [trials_or_analysis]
    found = trials_or_analysis if isinstance(trials_or_analysis, list | tuple) else None
    found = getattr(trials_or_analysis, "trials", None) if found is None else found
    if found is None:
        raise TypeError(f"Expected trials or an ExperimentAnalysis, got {type(trials_or_analysis).__name__}.")
    return list(found)


def __getattr__(name: str) -> Any:
    if name == "ConcurrencyLimiter":  # an older path of Ray's; its module imports this one
        from skate.tune.search.concurrency_limiter import ConcurrencyLimiter

        return ConcurrencyLimiter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
