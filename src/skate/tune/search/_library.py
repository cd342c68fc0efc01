"""The base class of searchers that use an optimization library."""

from __future__ import annotations

import logging
from typing import Any, ClassVar, Final

from skate.tune.experiment._metrics import lookup
from skate.tune.result import DEFAULT_METRIC
from skate.tune.search._parameters import Parameter, flatten_point, list_parameters, to_builtin
from skate.tune.search._space import (
    copy_tree,
    fill,
    finite_number,
    format_path,
    has_domains,
    unflatten,
    walk,
)
from skate.tune.search.searcher import Names, Searcher, Suggestion, check_objective

logger = logging.getLogger(__name__)

UNRESOLVED_SEARCH_SPACE: Final = (
    "The argument `{par}` of {cls} has domains of Tune, which are converted. "
    "Pass them as `param_space` to `tune.Tuner()` instead."
)
UNDEFINED_SEARCH_SPACE: Final = (
    "{cls} has no search space. Pass `{space}` to it, or `param_space` to `tune.Tuner()`."
)
UNDEFINED_METRIC_MODE: Final = (
    "{cls} needs a metric and a mode, got {metric!r} and {mode!r}. "
    "Pass `metric` and `mode` to it or to `tune.TuneConfig()`."
)


class LibrarySearcher(Searcher):
    """Suggests the configurations of a library, and reports the values of the metric to it.

    A subclass defines how to convert a space, set up the library, ask it for a configuration, and tell it a value. No
    attribute may be a module, so that the searcher can be pickled.

    Args:
        space: A search space of the library, or of Tune.
        metric: The metric to optimize; the value that a function returns if only the mode is given.
        mode: "min" or "max".
        points_to_evaluate: Configurations to suggest first.
        evaluated_rewards: The values of these configurations, which are then not suggested.
    """

    LIBRARY: ClassVar[str] = "The library"
    SPACE_ARGUMENT: ClassVar[str] = "space"
    NEEDS_OBJECTIVE: ClassVar[bool] = True
    NESTED_CHOICES: ClassVar[bool] = False  # whether values of choices may contain domains
    PARTIAL_POINTS: ClassVar[bool] = False  # whether the library completes points that lack parameters

    def __init__(
        self,
        space: Any = None,
        metric: Names = None,
        mode: Names = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        evaluated_rewards: list[Any] | None = None,
    ) -> None:
        super().__init__(metric=metric, mode=mode)
        _check_points(points_to_evaluate, evaluated_rewards)
        self._given_points = list(points_to_evaluate or ())
        self._rewards = evaluated_rewards
        self._space: Any = None
        self._tree: dict[str, Any] | None = None
        self._parameters: list[Parameter] = []
        self._points: list[dict[str, Any]] = []
        self._ready = False
        self._live: dict[str, Any] = {}  # what the library calls its trials, by trial
        self._suggested: dict[str, dict[str, Any]] = {}
        if isinstance(space, dict) and has_domains(space):
            logger.warning(UNRESOLVED_SEARCH_SPACE.format(par=self.SPACE_ARGUMENT, cls=type(self).__name__))
            self._set_tree(space)
        elif space is not None and not (isinstance(space, dict) and not space):
            self._set_space(space)

    # What a subclass defines.

    @staticmethod
    def convert_search_space(spec: dict[str, Any]) -> Any:
        """Return a search space of Tune as one of the library.

        Raises:
            ValueError: The library cannot express a value of the space; the error has its path and type.
        """
        raise NotImplementedError

    def _set_up(self) -> None:
        """Create the optimizer of the library; the space, the metric and the mode are known."""
        raise NotImplementedError

    def _ask(self, trial_id: str) -> tuple[dict[str, Any], Any] | str | None:
        """Return the values by parameter and the library's trial; None or FINISHED if there are none."""
        raise NotImplementedError

    def _ask_point(self, point: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        """Return the values by parameter and the library's trial of a point to evaluate."""
        raise NotImplementedError

    def _tell(self, handle: Any, value: Any, result: dict[str, Any]) -> None:
        """Tell the library the finite value of a trial."""
        raise NotImplementedError

    def _tell_failure(self, handle: Any, *, pruned: bool) -> None:
        """Tell the library that a trial has no value. By default, the trial is forgotten."""

    def _add_point(
        self, point: dict[str, Any], value: Any, intermediate_values: list[float] | None = None
    ) -> None:
        """Tell the library the finite value of a point that it did not suggest."""
        raise NotImplementedError(f"{type(self).__name__} cannot use points that were evaluated elsewhere.")

    def _add_failed_point(self, point: dict[str, Any], *, pruned: bool) -> None:
        """Tell the library that a point that it did not suggest has no value. By default, the point is forgotten."""

    def _space_names(self) -> list[str] | None:
        """Return the names of the parameters of a space of the library, or None if they are unknown."""
        return list(self._space) if isinstance(self._space, dict) else None

    # What Tune calls.

    def set_search_properties(self, metric: Names, mode: Names, config: dict[str, Any], **spec: Any) -> bool:
        """Set the metric, the mode and the search space of an experiment.

        Args:
            metric: The metric to optimize.
            mode: "min" or "max".
            config: The search space.
            **spec: Additional properties of the experiment.

        Returns:
            Whether the searcher uses the space; False if it has its own.

        Raises:
            ValueError: The library cannot express a value of the space.
        """
        check_objective(metric, mode)
        if self._space is not None:
            self._metric, self._mode = self._metric or metric, self._mode or mode
            return False
        self._metric, self._mode = metric or self._metric, mode or self._mode
        if has_domains(config):
            self._set_tree(config)
        return True

    def suggest(self, trial_id: str) -> Suggestion:
        """Return a configuration for a trial. If the trial already has one, return the same.

        Raises:
            RuntimeError: The search space, the metric or the mode is missing.
        """
        self._prepare()
        if trial_id in self._suggested:
            return copy_tree(self._suggested[trial_id])  # type: ignore[no-any-return]
        found = self._ask_point(self._points.pop(0)) if self._points else self._ask(trial_id)
        if found is None:
            return None
        if isinstance(found, str):
            return self.FINISHED
        flat, self._live[trial_id] = found
        self._suggested[trial_id] = self._to_config(flat)
        return copy_tree(self._suggested[trial_id])  # type: ignore[no-any-return]

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tell the library the value of a trial, or that it failed.

        A trial without a result that did not fail was stopped early. A trial whose metric is missing, NaN or
        infinite failed.

        Args:
            trial_id: The trial.
            result: The last result.
            error: Whether the trial failed.
        """
        if trial_id not in self._live:
            logger.warning(
                "Trial %s is not a trial of %s, or has completed before.", trial_id, type(self).__name__
            )
            return
        self._suggested.pop(trial_id, None)
        handle = self._live.pop(trial_id)
        value = None if error or not result else self._read_value(trial_id, result)
        if value is None or result is None:
            self._tell_failure(handle, pruned=not error and not result)
        else:
            self._tell(handle, value, result)

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: Any,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        """Add a configuration that was evaluated elsewhere.

        Args:
            parameters: The configuration. Keys that are not parameters are ignored.
            value: The value of the metric, or one for each metric.
            error: Whether the evaluation failed.
            pruned: Whether the evaluation was stopped early.
            intermediate_values: Values of the metric before the last.

        Raises:
            RuntimeError: The search space, the metric or the mode is missing.
            ValueError: The configuration lacks a parameter.
        """
        self._prepare()
        names = self._names()
        tree = fill({}, {}) if names is None else parameters
        point = (
            dict(parameters)
            if names is None
            else {n: v for n in names if (v := _find(tree, n)) is not _ABSENT}
        )
        self._check_complete(point)
        if error or pruned or not _is_finite(value):
            self._add_failed_point(point, pruned=pruned and not error)
        else:
            self._add_point(point, value, intermediate_values)

    def _set_tree(self, tree: dict[str, Any]) -> None:
        self._parameters = list_parameters(tree, self.LIBRARY, nested_choices=self.NESTED_CHOICES)
        self._tree = tree
        self._set_space(self.convert_search_space(tree))

    def _set_space(self, space: Any) -> None:
        self._space = space
        names = self._names()
        constants = [
            format_path(("config", *path)) for path, domain, _ in walk(self._tree or {}) if domain is None
        ]
        self._points = [flatten_point(point, names, constants) for point in self._given_points]
        for point in self._points:
            self._check_complete(point)

    def _names(self) -> list[str] | None:
        return [parameter.name for parameter in self._parameters] if self._tree else self._space_names()

    def _check_complete(self, point: dict[str, Any]) -> None:
        missing = [] if self.PARTIAL_POINTS else [name for name in self._names() or () if name not in point]
        if missing:
            raise ValueError(
                f"{type(self).__name__} needs all parameters of a point, and {missing} are missing."
            )

    def _prepare(self) -> None:
        """Set up the library at the first use, when the space, the metric and the mode are known."""
        if self._ready:
            return
        if self._space is None:
            raise RuntimeError(
                UNDEFINED_SEARCH_SPACE.format(cls=type(self).__name__, space=self.SPACE_ARGUMENT)
            )
        if self._metric is None and isinstance(self._mode, str):
            self._metric = DEFAULT_METRIC
        check_objective(self._metric, self._mode)
        if self.NEEDS_OBJECTIVE and not (self._metric and self._mode):
            raise RuntimeError(
                UNDEFINED_METRIC_MODE.format(cls=type(self).__name__, metric=self._metric, mode=self._mode)
            )
        self._set_up()
        self._ready = True
        if self._rewards is not None:
            points, self._points = self._points, []
            for point, reward in zip(points, self._rewards, strict=True):
                self.add_evaluated_point(point, reward)

    def _to_config(self, flat: dict[str, Any]) -> dict[str, Any]:
        """Return values by parameter as a configuration, within the domains of the space."""
        if self._tree is None:
            return unflatten({name: to_builtin(value) for name, value in flat.items()})
        return fill(self._tree, {each.path: each.project(flat[each.name]) for each in self._parameters})

    @property
    def _sign(self) -> float:
        """The factor that turns values of the metric into values to minimize."""
        return -1.0 if self._mode == "max" else 1.0

    def _read_value(self, trial_id: str, result: dict[str, Any]) -> Any:
        """Return the value of the metric, or of all metrics; None, with a warning, if it cannot be used."""
        metrics = [self._metric] if isinstance(self._metric, str) else list(self._metric or ())
        values = [lookup(result, metric) for metric in metrics]
        numbers = [finite_number(value) for value in values]
        for metric, value, number in zip(metrics, values, numbers, strict=True):
            if number is None:
                reason = "is missing in" if value is None else f"is {value!r} in"
                logger.warning(
                    "The metric %r %s the last result of trial %s, which counts as failed. The result has %s.",
                    metric,
                    reason,
                    trial_id,
                    sorted(map(str, result)),
                )
                return None
        return numbers[0] if isinstance(self._metric, str) else numbers


_ABSENT: Final = object()


def _find(parameters: dict[str, Any], name: str) -> Any:
    """Return the value of a parameter in a configuration that is nested or has names such as `optimizer/lr`."""
    if name in parameters:
        return parameters[name]
    value: Any = parameters
    for part in name.split("/"):
        try:
            value = value[int(part) if isinstance(value, list | tuple) else part]
        except (KeyError, IndexError, TypeError, ValueError):
            return _ABSENT
    return value


def _is_finite(value: Any) -> bool:
    values = value if isinstance(value, list | tuple) else [value]
    return all(finite_number(each) is not None for each in values)


def _check_points(points: Any, rewards: Any) -> None:
    if points is not None and not isinstance(points, list | tuple):
        raise TypeError(f"points_to_evaluate must be a list of dicts, got {points!r}.")
    if rewards is not None and not isinstance(rewards, list | tuple):
        raise TypeError(f"evaluated_rewards must be a list, got {rewards!r}.")
    if rewards is not None and len(rewards) != len(points or ()):
        raise ValueError(
            f"evaluated_rewards needs a value for each of the {len(points or ())} points_to_evaluate, "
            f"got {len(rewards)}."
        )
