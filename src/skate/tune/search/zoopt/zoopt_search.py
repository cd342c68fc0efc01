"""Search with ZOOpt."""

from __future__ import annotations

from typing import Any, ClassVar

from skate.air import _optional
from skate.tune.search._global_random import GlobalRandom
from skate.tune.search._library import LibrarySearcher
from skate.tune.search._parameters import Parameter, list_parameters, unsupported
from skate.tune.search.sample import Categorical, Float, Integer, Uniform

__all__ = ["ZOOptSearch"]

_LIBRARY = "ZOOpt"
_ALGORITHMS = ("asracos", "sracos")
_PRECISION = 1e-12  # of continuous parameters


class ZOOptSearch(LibrarySearcher):
    """Suggests configurations with the SRacos algorithm of ZOOpt.

    Args:
        algo: "asracos" or "sracos", which are the same algorithm here.
        budget: The number of trials of the experiment.
        dim_dict: Dimensions of ZOOpt by parameter; by default, those of the experiment.
        metric: The metric to optimize; the value that a function returns if only the mode is given.
        mode: "min" or "max".
        points_to_evaluate: Configurations to suggest first.
        parallel_num: The number of trials that run at the same time.
        seed: The seed; drawn from the global state of NumPy if None.
        **kwargs: Additional arguments of `zoopt.Parameter`.

    Raises:
        ImportError: ZOOpt is not installed.
        ValueError: The budget is missing, there is no such algorithm, the search space cannot be expressed, or a
            point has an unknown key.
    """

    LIBRARY: ClassVar = _LIBRARY
    SPACE_ARGUMENT: ClassVar = "dim_dict"

    def __init__(
        self,
        algo: str = "asracos",
        budget: int | None = None,
        dim_dict: dict[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        parallel_num: int = 1,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        _load()
        if budget is None:
            raise ValueError("ZOOptSearch needs a budget: the number of trials of the experiment.")
        if algo.lower() not in _ALGORITHMS:
            raise ValueError(f"ZOOptSearch has no algorithm {algo!r}: choose one of {list(_ALGORITHMS)}.")
        self._budget = budget
        self._parallel_num = parallel_num
        self._kwargs = kwargs
        self._seed = seed
        self._random: GlobalRandom | None = None
        self._worst: float | None = None  # the worst value so far, which stands for failed trials
        self._failed: list[Any] = []
        self.best_solution_list: list[Any] = []
        self.optimizer: Any = None
        super().__init__(dim_dict, metric, mode, points_to_evaluate)

    def _set_up(self) -> None:
        zoopt = _load()
        racos = _optional.load("zoopt.algos.opt_algorithms.racos.sracos", "ZOOptSearch", "zoopt")
        self._random = GlobalRandom(self._seed)
        with self._random.installed():
            self.optimizer = racos.SRacosTune(
                dimension=zoopt.Dimension2(list(self._space.values())),
                parameter=zoopt.Parameter(budget=self._budget, **self._kwargs),
                parallel_num=self._parallel_num,
            )

    def _ask(self, trial_id: str) -> tuple[dict[str, Any], Any] | str | None:
        assert self._random is not None
        with self._random.installed():
            solution = self.optimizer.suggest()
            if solution is None and not self._live:
                self._release()
                solution = self.optimizer.suggest() or self.FINISHED  # the space is fully explored
        if solution is None or isinstance(solution, str):
            return solution
        return dict(zip(self._space, solution.get_x(), strict=True)), solution

    def _release(self) -> None:
        """Let the optimizer continue although it waits for results, because no trial is running."""
        if self._failed:
            self._complete_failed(0.0)  # all trials failed so far: none is better than another
        self.optimizer.semaphore = 1
        self.optimizer.live_num = 0

    def _ask_point(self, point: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        values = [point[name] for name in self._space]
        found = self._ask("")
        if isinstance(found, tuple):  # the point replaces an initial sample
            solution = found[1]
            solution.set_x(values)
        else:
            solution = self.optimizer.get_objective().construct_solution(values)
            self.optimizer.live_num += 1
        return point, solution

    def _tell(self, handle: Any, value: Any, result: dict[str, Any]) -> None:
        loss = self._sign * value
        self._worst = loss if self._worst is None else max(self._worst, loss)
        self._complete_failed(self._worst)
        self._complete(handle, loss)

    def _tell_failure(self, handle: Any, *, pruned: bool) -> None:
        # The optimizer counts results, so it must be told a value for a failure. Until a value is known, failures wait.
        self._failed.append(handle)
        if self._worst is not None:
            self._complete_failed(self._worst)

    def _complete_failed(self, loss: float) -> None:
        failed, self._failed = self._failed, []
        for solution in failed:
            self._complete(solution, loss)

    def _complete(self, solution: Any, loss: float) -> None:
        assert self._random is not None
        with self._random.installed():
            best = self.optimizer.complete(solution, loss)
        if best is not None:
            self.best_solution_list.append(best)

    @staticmethod
    def convert_search_space(spec: dict[str, Any], join: bool = False) -> dict[str, Any]:
        """Return a search space of Tune as dimensions of ZOOpt by parameter.

        Args:
            spec: The search space.
            join: Whether to add the constants of the space.

        Raises:
            ValueError: ZOOpt cannot express a value of the space; the error has its path and type.
        """
        dimensions = {each.name: _dimension(each) for each in list_parameters(spec, _LIBRARY)}
        return {**spec, **dimensions} if join else dimensions


def _load() -> Any:
    return _optional.load("zoopt", "ZOOptSearch")


def _dimension(parameter: Parameter) -> tuple[Any, ...]:
    kinds, domain = _load().ValueType, parameter.domain
    if isinstance(parameter.sampler, Uniform):
        if isinstance(domain, Float):
            return (kinds.CONTINUOUS, [domain.lower, domain.upper], parameter.q or _PRECISION)
        if isinstance(domain, Integer):
            return (kinds.DISCRETE, [domain.lower, parameter.last], True)
        if isinstance(domain, Categorical):
            return (kinds.GRID, domain.categories)
    raise unsupported(_LIBRARY, parameter, "It searches only uniform distributions.")
