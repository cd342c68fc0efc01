"""Limit the number of concurrent trials of a searcher."""

from __future__ import annotations

import copy
from typing import Any

from skate.tune.search._wrapping import WrappingSearcher
from skate.tune.search.searcher import Names, Searcher, Suggestion

__all__ = ["ConcurrencyLimiter"]


class ConcurrencyLimiter(WrappingSearcher):
    """Limits the number of concurrent trials of a searcher.

    If the searcher can limit its trials itself, it is given the number.

    Args:
        searcher: The searcher.
        max_concurrent: The maximum number of concurrent trials.
        batch: Whether to wait for all running trials before telling the searcher their results.

    Raises:
        TypeError: `searcher` is not a Searcher.
        ValueError: `max_concurrent` is not a positive integer.
    """

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False) -> None:
        super().__init__(searcher)
        if isinstance(max_concurrent, bool) or not isinstance(max_concurrent, int) or max_concurrent < 1:
            raise ValueError(f"max_concurrent must be a positive integer, got {max_concurrent!r}.")
        self.max_concurrent = max_concurrent
        self.batch = batch
        self.live_trials: set[str] = set()
        self.cached_results: dict[str, tuple[dict[str, Any] | None, bool]] = {}
        self._limit_concurrency = not searcher.set_max_concurrency(max_concurrent)

    @property
    def num_unfinished_live_trials(self) -> int:
        """The number of trials that are running."""
        return len(self.live_trials) - len(self.cached_results)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Set the number of trials that may run at the same time, and return True."""
        self.max_concurrent = max_concurrent
        self._limit_concurrency = not self.searcher.set_max_concurrency(max_concurrent)
        return True

    def set_search_properties(self, metric: Names, mode: Names, config: dict[str, Any], **spec: Any) -> bool:
        """Set the properties of the wrapped searcher."""
        self._limit_concurrency = not self.searcher.set_max_concurrency(self.max_concurrent)
        return super().set_search_properties(metric, mode, config, **spec)

    def suggest(self, trial_id: str) -> Suggestion:
        """Return a configuration, or None if the limit is reached.

        Raises:
            ValueError: The trial has a configuration already.
        """
        if not self._limit_concurrency:
            return self.searcher.suggest(trial_id)
        if trial_id in self.live_trials:
            raise ValueError(f"Trial {trial_id} has a configuration already: ids of trials must be unique.")
        if len(self.live_trials) >= self.max_concurrent:
            return None
        suggestion = self.searcher.suggest(trial_id)
        if isinstance(suggestion, dict):
            self.live_trials.add(trial_id)
        return suggestion

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tell the searcher the end of a trial, or that of all trials of the batch after the last one."""
        if not self._limit_concurrency:
            self.searcher.on_trial_complete(trial_id, result=result, error=error)
            return
        if trial_id not in self.live_trials:
            return
        self.cached_results[trial_id] = (result, error)
        if self.batch and self.num_unfinished_live_trials > 0:
            return
        completed, self.cached_results = self.cached_results, {}
        for each, (last_result, failed) in completed.items():
            self.live_trials.discard(each)
            self.searcher.on_trial_complete(each, result=last_result, error=failed)

    def get_state(self) -> dict[str, Any]:
        """Return the state without that of the wrapped searcher, which is saved separately."""
        return copy.deepcopy(super().get_state())

    def on_pause(self, trial_id: str) -> None:
        """Tell a searcher for BOHB that a trial was paused."""
        if (handler := getattr(self.searcher, "on_pause", None)) is not None:
            handler(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        """Tell a searcher for BOHB that a trial was resumed."""
        if (handler := getattr(self.searcher, "on_unpause", None)) is not None:
            handler(trial_id)
