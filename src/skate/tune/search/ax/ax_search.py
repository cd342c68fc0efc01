"""Search with Ax."""

from __future__ import annotations

from typing import Any, ClassVar

from skate.air import _optional
from skate.tune.experiment._metrics import lookup
from skate.tune.search._global_random import GlobalRandom
from skate.tune.search._library import LibrarySearcher
from skate.tune.search._parameters import Parameter, list_parameters, unsupported
from skate.tune.search._space import finite_number
from skate.tune.search.sample import Categorical, Float, Integer, LogUniform, Uniform

__all__ = ["AxSearch"]

_LIBRARY = "Ax"
_CLIENT = "ax.service.ax_client"
_VALUE_TYPES = {bool: "bool", int: "int", float: "float", str: "str"}


class AxSearch(LibrarySearcher):
    """Suggests configurations with the Bayesian optimization of Ax.

    Ax limits the number of trials that run at the same time, and suggests nothing while the limit is reached.

    Args:
        space: Parameters of Ax, a list of dicts; by default, that of the experiment.
        metric: The metric to optimize; the value that a function returns if only the mode is given.
        mode: "min" or "max".
        points_to_evaluate: Configurations to suggest first.
        parameter_constraints: Constraints of parameters, such as `"x1 + x2 <= 2.0"`.
        outcome_constraints: Constraints of metrics, such as `"memory <= 10.0"`.
        ax_client: A client of Ax. If it has an experiment, the search space, the metric and the mode are those of
            the experiment.
        **ax_kwargs: Arguments of `AxClient`, such as `random_seed`, if `ax_client` is None.

    Raises:
        ImportError: Ax is not installed.
        ValueError: The search space cannot be expressed, a point has an unknown key, or an argument repeats what
            the experiment of the client has.
    """

    LIBRARY: ClassVar = _LIBRARY

    def __init__(
        self,
        space: list[dict[str, Any]] | dict[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        parameter_constraints: list[str] | None = None,
        outcome_constraints: list[str] | None = None,
        ax_client: Any = None,
        **ax_kwargs: Any,
    ) -> None:
        _optional.require("ax", "AxSearch", "ax-platform")
        self._client = ax_client
        self._client_options = ax_kwargs
        self._constraints = {
            "parameter_constraints": parameter_constraints,
            "outcome_constraints": outcome_constraints,
        }
        self._random: GlobalRandom | None = None
        if ax_client is not None and _has_experiment(ax_client):
            given = (space, metric, mode, parameter_constraints, outcome_constraints)
            if any(each is not None for each in given):
                raise ValueError(
                    "The client of Ax has an experiment: do not pass space, metric, mode, parameter_constraints or "
                    "outcome_constraints too."
                )
            objective = ax_client.experiment.optimization_config.objective
            metric, mode = ax_client.objective_name, "min" if objective.minimize else "max"
            space = [{"name": name} for name in ax_client.experiment.parameters]
        super().__init__(space, metric, mode, points_to_evaluate)

    def _space_names(self) -> list[str]:
        return [parameter["name"] for parameter in self._space]

    def _set_up(self) -> None:
        library = _optional.load(_CLIENT, "AxSearch", "ax-platform")
        self._random = GlobalRandom(self._client_options.get("random_seed"), torch=True)
        if self._client is None:
            self._client = library.AxClient(**{"verbose_logging": False, **self._client_options})
        if not _has_experiment(self._client):
            self._client.create_experiment(
                parameters=self._space,
                objectives={str(self._metric): library.ObjectiveProperties(minimize=self._mode == "min")},
                **self._constraints,
            )

    def _ask(self, trial_id: str) -> tuple[dict[str, Any], int] | None:
        waiting = (
            _optional.load("ax.exceptions.core", "AxSearch", "ax-platform").DataRequiredError,
            _optional.load(
                "ax.exceptions.generation_strategy", "AxSearch", "ax-platform"
            ).MaxParallelismReachedException,
        )
        assert self._random is not None
        with self._random.installed():
            try:
                parameters, index = self._client.get_next_trial()
            except waiting:
                return None
        return dict(parameters), index

    def _ask_point(self, point: dict[str, Any]) -> tuple[dict[str, Any], int]:
        parameters, index = self._client.attach_trial(point)
        return dict(parameters), index

    def _tell(self, handle: int, value: Any, result: dict[str, Any]) -> None:
        data: dict[str, tuple[float, float | None]] = {str(self._metric): (value, None)}
        for metric in self._client.experiment.optimization_config.metric_names - {self._metric}:
            found = finite_number(lookup(result, metric))
            if found is None:
                self._tell_failure(handle, pruned=False)  # a constraint cannot be checked
                return
            data[metric] = (found, None)
        self._client.complete_trial(handle, raw_data=data)

    def _tell_failure(self, handle: int, *, pruned: bool) -> None:
        self._client.log_trial_failure(handle)

    def _add_point(
        self, point: dict[str, Any], value: Any, intermediate_values: list[float] | None = None
    ) -> None:
        _, index = self._client.attach_trial(point)
        self._tell(index, float(value), {})

    @staticmethod
    def convert_search_space(spec: dict[str, Any]) -> list[dict[str, Any]]:
        """Return a search space of Tune as parameters of Ax.

        Args:
            spec: The search space.

        Raises:
            ValueError: Ax cannot express a value of the space; the error has its path and type.
        """
        return [_parameter(each) for each in list_parameters(spec, _LIBRARY)]


def _has_experiment(client: Any) -> bool:
    try:
        return client.experiment is not None
    except (AssertionError, ValueError):  # which depends on the version of Ax
        return False


def _parameter(parameter: Parameter) -> dict[str, Any]:
    """Return a parameter of Ax. It has no quantization: suggestions are rounded."""
    domain, name = parameter.domain, parameter.name
    log = isinstance(parameter.sampler, LogUniform)
    if not log and not isinstance(parameter.sampler, Uniform):
        raise unsupported(_LIBRARY, parameter)
    if isinstance(domain, Categorical):
        kinds = {type(value) for value in domain.categories}
        if len(kinds) != 1 or not kinds <= set(_VALUE_TYPES):
            raise unsupported(
                _LIBRARY, parameter, "The values of a choice must all be bool, int, float or str."
            )
        values, kind = list(dict.fromkeys(domain.categories)), _VALUE_TYPES[kinds.pop()]
        if len(values) == 1:
            return {"name": name, "type": "fixed", "value": values[0], "value_type": kind}
        choice = {"name": name, "type": "choice", "values": values, "value_type": kind}
        return {**choice, "is_ordered": False, "sort_values": False}
    if isinstance(domain, Float | Integer):
        number, kind = (int, "int") if isinstance(domain, Integer) else (float, "float")
        upper = parameter.last if isinstance(domain, Integer) else domain.upper
        if domain.lower == upper:
            return {"name": name, "type": "fixed", "value": number(upper), "value_type": kind}
        bounds = [number(domain.lower), number(upper)]
        return {"name": name, "type": "range", "bounds": bounds, "value_type": kind, "log_scale": log}
    raise unsupported(_LIBRARY, parameter)
