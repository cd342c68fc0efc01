"""Grid and random search."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from skate.tune.experiment.trial import Trial
from skate.tune.search._experiments import create_trial, list_specs
from skate.tune.search._persistence import newest_file, read_state, write_state
from skate.tune.search.sample import RandomState
from skate.tune.search.search_algorithm import SearchAlgorithm
from skate.tune.search.variant_generator import (
    Variants,
    apply_preset,
    count_variants,
    evaluated_params,
    format_vars,
)

__all__ = ["BasicVariantGenerator"]

_PREFIX_ENV = "_TEST_TUNE_TRIAL_UUID"  # a fixed prefix of the ids of trials, for tests


class _Samples:
    """The variants of one experiment: first those of preset points, then those of samples."""

    def __init__(
        self,
        spec: dict[str, Any],
        points: list[dict[str, Any]],
        constant_grid_search: bool,
        random_state: RandomState,
    ) -> None:
        self._spec = spec
        self._points = list(points)
        self._left = max(spec.get("num_samples", 1), len(points))
        self._constant = constant_grid_search
        self._random_state = random_state
        self._variants: Variants | None = None
        self._usual: Variants | None = None  # those without a preset point

    def next_variant(self) -> tuple[dict[Any, Any], dict[str, Any]] | None:
        """Return the sampled values and the specification of the next trial, or None after the last."""
        while True:
            if self._variants is not None:
                if (found := next(self._variants, None)) is not None:
                    return found
                self._variants = None
            if self._left <= 0:
                return None
            self._left -= 1
            if self._points:
                self._variants = self._start(apply_preset(self._spec, self._points.pop(0)))
            elif self._usual is None:
                self._variants = self._usual = self._start(self._spec)
            else:
                self._usual.restart()
                self._variants = self._usual

    def _start(self, spec: dict[str, Any]) -> Variants:
        return Variants(spec, self._constant, self._random_state)


class BasicVariantGenerator(SearchAlgorithm):
    """Creates a trial for every combination of the grids of a space, with the other values sampled.

    It is the search algorithm of experiments that name no other one.

    Args:
        points_to_evaluate: Values of the first samples. Values that a point does not have are sampled, or
            enumerated if they are grids.
        max_concurrent: The maximum number of concurrent trials; 0 for no limit.
        constant_grid_search: Sample values once, and keep them for all combinations of grids.
        random_state: A seed or NumPy generator; the global state of NumPy if None.

    Raises:
        TypeError: `points_to_evaluate` is not a list of dicts.
    """

    CKPT_FILE_TMPL: ClassVar = "basic-variant-state-{}.json"

    def __init__(
        self,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        max_concurrent: int = 0,
        constant_grid_search: bool = False,
        random_state: RandomState = None,
    ) -> None:
        points = points_to_evaluate or []
        if not isinstance(points, list | tuple) or not all(isinstance(point, dict) for point in points):
            raise TypeError(f"points_to_evaluate must be a list of dicts, got {points_to_evaluate!r}.")
        seeded = isinstance(random_state, int | np.integer)
        self._random_state = np.random.default_rng(random_state) if seeded else random_state
        self._points_to_evaluate = list(points)
        self._constant_grid_search = constant_grid_search
        self.max_concurrent = max_concurrent
        self._prefix = f"{os.environ.get(_PREFIX_ENV) or Trial.generate_id()[:5]}_"
        self._experiments: list[_Samples] = []
        self._live_trials: set[str] = set()
        self._counter = 0
        self._total_samples = 0

    @property
    def total_samples(self) -> int:
        """The number of trials of all experiments."""
        return self._total_samples

    def add_configurations(self, experiments: Any) -> None:
        """Add experiments, whose trials follow those of earlier ones.

        Args:
            experiments: An experiment, several, or a dict of specifications by name.

        Raises:
            ValueError: A point to evaluate has a key that the space does not have.
        """
        for spec in list_specs(experiments):
            self._total_samples += count_variants(spec, self._points_to_evaluate)
            self._experiments.append(
                _Samples(spec, self._points_to_evaluate, self._constant_grid_search, self._random_state)
            )

    def next_trial(self) -> Trial | None:
        """Return the next trial, or None if there is none, or none now."""
        if self.is_finished() or 0 < self.max_concurrent <= len(self._live_trials):
            return None
        while self._experiments:
            if (found := self._experiments[0].next_variant()) is not None:
                return self._create_trial(*found)
            self._experiments.pop(0)
        self.set_finished()
        return None

    def _create_trial(self, resolved: dict[Any, Any], spec: dict[str, Any]) -> Trial:
        tag = str(self._counter)
        trial = create_trial(
            spec,
            trial_id=f"{self._prefix}{self._counter:05d}",
            evaluated_params=evaluated_params(resolved),
            experiment_tag=f"{tag}_{format_vars(resolved)}" if resolved else tag,
        )
        self._counter += 1
        self._live_trials.add(trial.trial_id)
        return trial

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Handle the end of a trial, after which another may run."""
        self._live_trials.discard(trial_id)

    def get_state(self) -> dict[str, Any]:
        """Return the state, for `set_state`."""
        return self.__dict__.copy()

    def set_state(self, state: dict[str, Any]) -> None:
        """Set the state to one that `get_state` returned."""
        self.__dict__.update(state)

    def has_checkpoint(self, dirpath: str) -> bool:
        """Return whether a folder holds a state to restore."""
        return newest_file(dirpath, self.CKPT_FILE_TMPL.format("*")) is not None

    def save_to_dir(self, dirpath: str, session_str: str = "default", **kwargs: Any) -> None:
        """Write the state to a folder.

        Args:
            dirpath: The folder.
            session_str: Part of the name of the file; the last one in order is restored.
            **kwargs: Accepted for other search algorithms.
        """
        write_state(self.get_state(), Path(dirpath) / self.CKPT_FILE_TMPL.format(session_str))

    def restore_from_dir(self, dirpath: str) -> None:
        """Read the state from a folder.

        Raises:
            RuntimeError: The folder has no state.
        """
        found = newest_file(dirpath, self.CKPT_FILE_TMPL.format("*"))
        if found is None:
            raise RuntimeError(f"{os.fspath(dirpath)} has no state of a BasicVariantGenerator to restore.")
        self.set_state(read_state(found))
