"""The interface of search algorithms, which create the trials of an experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skate.tune.search.searcher import Names

if TYPE_CHECKING:
    from skate.tune.experiment.trial import Trial

__all__ = ["SearchAlgorithm"]


class SearchAlgorithm:
    """Creates the trials of an experiment, one at a time, and receives their results."""

    _finished = False
    _metric: Names = None

    @property
    def metric(self) -> Names:
        """The metric to optimize."""
        return self._metric

    def set_search_properties(self, metric: Names, mode: Names, config: dict[str, Any], **spec: Any) -> bool:
        """Set the metric, the mode and the search space of an experiment, and return whether they are used."""
        if self._metric and metric:
            return False
        self._metric = metric or self._metric
        return True

    @property
    def total_samples(self) -> int:
        """The number of trials that will be created."""
        return 0

    def add_configurations(self, experiments: Any) -> None:
        """Add experiments.

        Args:
            experiments: An experiment, several, or a dict of specifications by name.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define add_configurations().")

    def next_trial(self) -> Trial | None:
        """Return a new trial, or None if there is none now."""
        raise NotImplementedError(f"{type(self).__name__} does not define next_trial().")

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Handle an intermediate result of a trial."""

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Handle the end of a trial."""

    def is_finished(self) -> bool:
        """Return whether no more trials will be created; some may still be running."""
        return self._finished

    def set_finished(self) -> None:
        """Create no more trials."""
        self._finished = True

    def has_checkpoint(self, dirpath: str) -> bool:
        """Return whether a folder holds a state to restore."""
        return False

    def save_to_dir(self, dirpath: str, **kwargs: Any) -> None:
        """Write the state to a folder."""

    def restore_from_dir(self, dirpath: str) -> None:
        """Read the state from a folder."""
