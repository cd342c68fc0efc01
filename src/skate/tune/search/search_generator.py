"""Create trials with the configurations that a searcher suggests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from skate.tune.error import TuneError
from skate.tune.experiment.trial import Trial
from skate.tune.search._experiments import create_trial, list_specs
from skate.tune.search._persistence import newest_file, read_state, write_state
from skate.tune.search._space import copy_tree, flatten, format_path, merge
from skate.tune.search._wrapping import WrappingSearcher, pass_search_properties
from skate.tune.search.repeater import warn_of_leftover
from skate.tune.search.search_algorithm import SearchAlgorithm
from skate.tune.search.searcher import Names, Searcher
from skate.tune.search.variant_generator import format_vars

__all__ = ["SearchGenerator"]


class SearchGenerator(SearchAlgorithm):
    """Creates trials with the configurations that a searcher suggests.

    Args:
        searcher: The searcher.

    Raises:
        TypeError: It is not a Searcher.
    """

    CKPT_FILE_TMPL: ClassVar = "search_gen_state-{}.json"

    def __init__(self, searcher: Searcher) -> None:
        if not isinstance(searcher, Searcher):
            raise TypeError(f"SearchGenerator needs a Searcher, got {type(searcher).__name__}.")
        self.searcher = searcher
        self._spec: dict[str, Any] | None = None
        self._counter = 0
        self._total_samples = 0
        self._finished = False

    @property
    def metric(self) -> Names:
        """The metric of the searcher."""
        return self.searcher.metric

    @property
    def total_samples(self) -> int:
        """The maximum number of trials that will be created."""
        return self._total_samples

    def set_search_properties(self, metric: Names, mode: Names, config: dict[str, Any], **spec: Any) -> bool:
        """Set the properties of the searcher."""
        return pass_search_properties(self.searcher, metric, mode, config, spec)

    def add_configurations(self, experiments: Any) -> None:
        """Set the experiment.

        Args:
            experiments: An experiment, or a dict with one specification by its name.

        Raises:
            TuneError: There is an experiment already, or the argument has several.
        """
        specs = list_specs(experiments)
        if self._spec is not None or len(specs) != 1:
            raise TuneError(f"A searcher runs one experiment, got {len(specs) + (self._spec is not None)}.")
        self._spec = specs[0]
        self._total_samples = self._spec.get("num_samples", 1)
        warn_of_leftover(self.searcher, self._total_samples)

    def next_trial(self) -> Trial | None:
        """Return a trial with the next suggestion, or None if there is none now."""
        if self._spec is None or self.is_finished():
            return None
        return self.create_trial_if_possible(self._spec)

    def create_trial_if_possible(self, experiment_spec: dict[str, Any]) -> Trial | None:
        """Return a trial of an experiment with the next suggestion, or None if there is none now."""
        trial_id = Trial.generate_id()
        suggestion = self.searcher.suggest(trial_id)
        if suggestion == Searcher.FINISHED:
            self._finished = True
        if not isinstance(suggestion, dict):
            return None
        config = merge(copy_tree(experiment_spec.get("config") or {}), copy_tree(suggestion))
        self._counter += 1
        return create_trial(
            {**experiment_spec, "config": config},
            trial_id=trial_id,
            evaluated_params={
                format_path(("config", *path)): value for path, value in flatten(suggestion).items()
            },
            experiment_tag=f"{self._counter}_{format_vars(flatten(config))}",
        )

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Tell the searcher a result."""
        self.searcher.on_trial_result(trial_id, result)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tell the searcher the end of a trial."""
        self.searcher.on_trial_complete(trial_id=trial_id, result=result, error=error)

    def is_finished(self) -> bool:
        """Return whether all samples are created, or the searcher has no more."""
        return self._counter >= self._total_samples or self._finished

    def get_state(self) -> dict[str, Any]:
        """Return the state without that of the searcher, which is saved separately."""
        return {
            "counter": self._counter,
            "total_samples": self._total_samples,
            "finished": self._finished,
            "experiment": self._spec,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Set the state to one that `get_state` returned."""
        self._counter = state["counter"]
        self._total_samples = state["total_samples"]
        self._finished = state["finished"]
        self._spec = state["experiment"]

    def has_checkpoint(self, dirpath: str) -> bool:
        """Return whether a folder holds a state to restore."""
        return newest_file(dirpath, self.CKPT_FILE_TMPL.format("*")) is not None

    def save_to_dir(self, dirpath: str, session_str: str = "default", **kwargs: Any) -> None:
        """Write the state to a folder. The state of the innermost searcher is written to a separate file.

        Args:
            dirpath: The folder.
            session_str: Part of the names of the files; the last ones in order are restored.
            **kwargs: Accepted for other search algorithms.
        """
        wrappers, searcher = self._unwrap()
        searcher.save_to_dir(dirpath, session_str)
        state = {**self.get_state(), "wrappers": [wrapper.get_state() for wrapper in wrappers]}
        write_state(state, Path(dirpath) / self.CKPT_FILE_TMPL.format(session_str))

    def restore_from_dir(self, dirpath: str) -> None:
        """Read the state from a folder.

        Raises:
            RuntimeError: The folder has no state, or its state belongs to other wrappers.
        """
        found = newest_file(dirpath, self.CKPT_FILE_TMPL.format("*"))
        if found is None:
            raise RuntimeError(f"{os.fspath(dirpath)} has no state of a search algorithm to restore.")
        state = read_state(found)
        wrappers, searcher = self._unwrap()
        if len(wrappers) != len(state["wrappers"]):
            raise RuntimeError(
                f"The state in {found} belongs to {len(state['wrappers'])} wrappers of a searcher, such as "
                f"ConcurrencyLimiter, not to {len(wrappers)}. Wrap the searcher as in the first run."
            )
        for wrapper, each in zip(wrappers, state["wrappers"], strict=True):
            wrapper.set_state(each)
        searcher.restore_from_dir(dirpath)
        self.set_state(state)

    def _unwrap(self) -> tuple[list[WrappingSearcher], Searcher]:
        wrappers: list[WrappingSearcher] = []
        searcher = self.searcher
        while isinstance(searcher, WrappingSearcher):
            wrappers.append(searcher)
            searcher = searcher.searcher
        return wrappers, searcher
