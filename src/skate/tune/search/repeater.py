"""Repeat each configuration in several trials, and average their results."""

from __future__ import annotations

import logging
from typing import Any, Final

from skate.tune.experiment._metrics import lookup
from skate.tune.search._space import copy_tree, finite_number
from skate.tune.search._wrapping import WrappingSearcher
from skate.tune.search.searcher import Searcher, Suggestion

__all__ = ["TRIAL_INDEX", "Repeater"]

logger = logging.getLogger(__name__)

TRIAL_INDEX: Final = "__trial_index__"  # the key of a configuration that holds the number of the repetition


class _Repetitions:
    """The trials of one configuration, and the values that each has reported."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.values: dict[str, list[float | None] | None] = {}

    @property
    def first(self) -> str:
        return next(iter(self.values))


class Repeater(WrappingSearcher):
    """Runs several trials of each configuration, and tells the searcher the mean of their results.

    `num_samples` counts all trials: with 15 samples and 5 repetitions, the searcher suggests 3 configurations.
    The trials of an incomplete configuration are not reported to the searcher. Schedulers that stop trials early
    distort the mean.

    Args:
        searcher: The searcher, which knows only the first trial of each configuration.
        repeat: The number of trials of each configuration.
        set_index: Whether to add the number of the repetition to the configuration, under `TRIAL_INDEX`.

    Raises:
        ValueError: `repeat` is not a positive integer.
    """

    def __init__(self, searcher: Searcher, repeat: int = 1, set_index: bool = True) -> None:
        super().__init__(searcher)
        if isinstance(repeat, bool) or not isinstance(repeat, int) or repeat < 1:
            raise ValueError(f"repeat must be a positive integer, got {repeat!r}.")
        self.repeat = repeat
        self._set_index = set_index
        self._current: _Repetitions | None = None
        self._by_trial: dict[str, _Repetitions] = {}

    def suggest(self, trial_id: str) -> Suggestion:
        """Return the current configuration, or a new one after `repeat` trials."""
        if self._current is None or len(self._current.values) >= self.repeat:
            suggestion = self.searcher.suggest(trial_id)
            if not isinstance(suggestion, dict):
                return suggestion
            self._current = _Repetitions(suggestion)
        index = len(self._current.values)
        self._current.values[trial_id] = None
        self._by_trial[trial_id] = self._current
        config: dict[str, Any] = copy_tree(self._current.config)
        return {**config, TRIAL_INDEX: index} if self._set_index else config

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False, **kwargs: Any
    ) -> None:
        """Record the result of a trial. After the last trial of a configuration, tell the searcher their mean.

        Failed trials and values that are missing, NaN or infinite do not count. The searcher is told that the
        configuration failed if no other values remain.
        """
        group = self._by_trial.pop(trial_id, None)
        if group is None:
            logger.warning("Trial %s is not a trial of this searcher, or has completed before.", trial_id)
            return
        metrics = [self.metric] if isinstance(self.metric, str) else list(self.metric or ())
        found = [None if error else finite_number(lookup(result or {}, metric)) for metric in metrics]
        group.values[trial_id] = found
        done = [values for values in group.values.values() if values is not None]
        if len(done) < self.repeat:
            return
        usable = [
            numbers
            for values in done
            if len(numbers := [each for each in values if each is not None]) == len(metrics)
        ]
        if not usable or not metrics:
            self.searcher.on_trial_complete(group.first, result=None, error=True, **kwargs)
            return
        means = [sum(column) / len(usable) for column in zip(*usable, strict=True)]
        self.searcher.on_trial_complete(
            group.first, result=dict(zip(metrics, means, strict=True)), error=False, **kwargs
        )


def warn_of_leftover(searcher: Searcher, num_samples: int) -> None:
    """Warn if the last configuration of a Repeater has fewer trials than the others."""
    if isinstance(searcher, Repeater) and num_samples % searcher.repeat:
        logger.warning(
            "num_samples=%d is not a multiple of repeat=%d: the last %d trials are not reported to the searcher.",
            num_samples,
            searcher.repeat,
            num_samples % searcher.repeat,
        )
