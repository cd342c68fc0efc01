"""Quasi-random search with a scrambled Sobol sequence."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from skate.air import _optional
from skate.tune.search._library import LibrarySearcher
from skate.tune.search._parameters import Parameter, list_parameters
from skate.tune.search.searcher import Names

__all__ = ["SobolSearch"]

_BLOCK = 64  # points that are generated at a time; a power of two keeps the sequence balanced


class SobolSearch(LibrarySearcher):
    """Suggests the points of a scrambled Sobol sequence, which cover a space more evenly than random ones.

    It does not learn from results, and needs no metric.

    Args:
        space: The search space; by default, that of the experiment.
        metric: The metric that the experiment optimizes.
        mode: "min" or "max".
        points_to_evaluate: Configurations to suggest first.
        seed: The seed of the scrambling; drawn from the global state of NumPy if None.
    """

    LIBRARY: ClassVar = "Quasi-random search"
    NEEDS_OBJECTIVE: ClassVar = False

    def __init__(
        self,
        space: dict[str, Any] | None = None,
        metric: Names = None,
        mode: Names = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        seed: int | None = None,
    ) -> None:
        _optional.require("scipy", "SobolSearch")
        self._seed = int(np.random.randint(2**32, dtype=np.uint32)) if seed is None else seed
        self._drawn = 0
        self._block: list[list[float]] = []
        super().__init__(None, metric, mode, points_to_evaluate)
        if space:
            self._set_tree(space)

    @staticmethod
    def convert_search_space(spec: dict[str, Any]) -> list[Parameter]:
        """Return the parameters of a search space, one for each dimension of the sequence.

        Raises:
            ValueError: A value of the space has no distribution.
        """
        return list_parameters(spec, SobolSearch.LIBRARY)

    def _set_up(self) -> None:
        pass

    def _ask(self, trial_id: str) -> tuple[dict[str, Any], Any]:
        if not self._block:
            qmc = _optional.load("scipy.stats.qmc", "SobolSearch", "scipy")
            sequence = qmc.Sobol(len(self._parameters), scramble=True, rng=np.random.default_rng(self._seed))
            if self._drawn:
                sequence.fast_forward(self._drawn)
            self._block = sequence.random(_BLOCK).tolist()
            self._drawn += _BLOCK
        point = self._block.pop(0)
        flat: dict[str, Any] = {}
        for each, coordinate in zip(self._parameters, point, strict=True):
            level = np.array([min(coordinate, math.nextafter(1, 0))])
            flat[each.name] = each.domain.cast(each.domain.get_sampler().quantile(each.domain, level)[0])
        return flat, flat

    def _ask_point(self, point: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        return point, point

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Forget a trial, because results do not change the sequence."""
        self._live.pop(trial_id, None)
        self._suggested.pop(trial_id, None)
