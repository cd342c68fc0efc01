"""Search with HyperOpt."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar

import numpy as np

from skate.air import _optional
from skate.tune.search._distributions import multiples
from skate.tune.search._library import LibrarySearcher
from skate.tune.search._parameters import Parameter, list_parameters, unsupported
from skate.tune.search._space import assign_value, copy_tree, get_value, has_domains, merge
from skate.tune.search.sample import Categorical, Domain, Float, Integer, LogUniform, Normal, Uniform

__all__ = ["HyperOptSearch"]

_LIBRARY = "HyperOpt"


class HyperOptSearch(LibrarySearcher):
    """Suggests configurations with the tree-structured Parzen estimator of HyperOpt.

    Values of a choice may contain domains.

    Args:
        space: A search space of HyperOpt; by default, that of the experiment.
        metric: The metric to optimize; the value that a function returns if only the mode is given.
        mode: "min" or "max".
        points_to_evaluate: Configurations to suggest first.
        n_initial_points: The number of random configurations before the model is used.
        random_state_seed: The seed.
        gamma: The fraction of configurations that the model considers good.

    Raises:
        ImportError: HyperOpt is not installed.
        ValueError: The search space cannot be expressed, or a point has an unknown key.
    """

    LIBRARY: ClassVar = _LIBRARY
    NESTED_CHOICES: ClassVar = True

    def __init__(
        self,
        space: dict[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        n_initial_points: int = 20,
        random_state_seed: int | None = None,
        gamma: float = 0.25,
    ) -> None:
        _load()
        self._options = {"n_startup_jobs": n_initial_points, "gamma": gamma}
        self._rng = np.random.default_rng(random_state_seed)
        self._trials: Any = None
        self._domain: Any = None
        self._categories: dict[str, list[Any]] = {}
        super().__init__(space, metric, mode, points_to_evaluate)

    def _set_space(self, space: Any) -> None:
        named = {each.name: get_value(space, each.path) for each in self._parameters} if self._tree else space
        self._categories = _categories(named)
        self._expression = named
        super()._set_space(space)

    def _space_names(self) -> list[str]:
        return _labels(self._expression)

    def _check_complete(self, point: dict[str, Any]) -> None:
        if self._tree:  # spaces of HyperOpt may have conditional parameters
            super()._check_complete(point)

    def _set_up(self) -> None:
        hyperopt = _load()
        self._trials = hyperopt.Trials()
        self._domain = hyperopt.Domain(_identity, self._expression)

    def _ask(self, trial_id: str) -> tuple[dict[str, Any], int]:
        hyperopt = _load()
        (tid,) = self._trials.new_trial_ids(1)
        self._trials.refresh()
        options = {name: value for name, value in self._options.items() if value is not None}
        suggest = partial(hyperopt.tpe.suggest, **options)
        docs = suggest([tid], self._domain, self._trials, int(self._rng.integers(2**31 - 1)))
        self._trials.insert_trial_docs(docs)
        self._trials.refresh()
        return self._evaluate(docs[0]["misc"]["vals"]), tid

    def _ask_point(self, point: dict[str, Any]) -> tuple[dict[str, Any], int]:
        tid = self._insert(point)
        return self._evaluate(self._document(tid)["misc"]["vals"]), tid

    def _insert(self, point: dict[str, Any]) -> int:
        """Add a trial with given values, which are positions for choices."""
        (tid,) = self._trials.new_trial_ids(1)
        values = {name: [self._encode(name, value)] for name, value in point.items()}
        labels = _labels(self._expression)
        misc = {
            "tid": tid,
            "cmd": ("domain_attachment", "FMinIter_Domain"),
            "workdir": None,
            "idxs": {label: [tid] if label in values else [] for label in labels},
            "vals": {label: values.get(label, []) for label in labels},
        }
        self._trials.insert_trial_docs(
            self._trials.new_trial_docs([tid], [None], [{"status": "new"}], [misc])
        )
        self._trials.refresh()
        return int(tid)

    def _encode(self, name: str, value: Any) -> Any:
        if name not in self._categories:
            return value
        for position, category in enumerate(self._categories[name]):
            if type(category) is type(value) and category == value:
                return position
        raise ValueError(
            f"The point to evaluate has the value {value!r} for {name!r}, which is not one of the constants "
            f"{[each for each in self._categories[name] if each is not _NESTED]}."
        )

    def _evaluate(self, values: dict[str, list[Any]]) -> dict[str, Any]:
        """Return the configuration of a trial: by parameter for spaces of Tune, else as the space is nested."""
        hyperopt = _load()
        assignment = {label: found[0] for label, found in values.items() if len(found)}
        return dict(hyperopt.space_eval(self._expression, assignment))

    def _to_config(self, flat: dict[str, Any]) -> dict[str, Any]:
        return merge(self._tree, super()._to_config(flat)) if self._tree else flat  # with the constants

    def _document(self, tid: int) -> Any:
        return next(each for each in self._trials._dynamic_trials if each["tid"] == tid)

    def _finish(self, tid: int, state: int, result: dict[str, Any]) -> None:
        document = self._document(tid)
        document["state"] = state
        document["result"] = result
        self._trials.refresh()

    def _tell(self, handle: int, value: Any, result: dict[str, Any]) -> None:
        self._finish(handle, _load().JOB_STATE_DONE, {"loss": self._sign * value, "status": "ok"})

    def _tell_failure(self, handle: int, *, pruned: bool) -> None:
        self._finish(handle, _load().JOB_STATE_ERROR, {"status": "fail"})

    def _add_point(
        self, point: dict[str, Any], value: Any, intermediate_values: list[float] | None = None
    ) -> None:
        self._tell(self._insert(point), value, {})

    @staticmethod
    def convert_search_space(spec: dict[str, Any], prefix: str = "") -> dict[str, Any]:
        """Return a search space of Tune as one of HyperOpt, with its constants.

        Args:
            spec: The search space.
            prefix: The first part of the names of parameters.

        Raises:
            ValueError: HyperOpt cannot express a value of the space; the error has its path and type.
        """
        parameters = list_parameters(spec, _LIBRARY, nested_choices=True)
        converted = copy_tree(spec) if parameters else {}
        for each in parameters:
            label = f"{prefix}/{each.name}" if prefix else each.name
            converted = assign_value(converted, each.path, _expression(label, each))
        return converted


class _Nested:
    """Stands for a value of a choice that contains domains."""


_NESTED = _Nested()


def _load() -> Any:
    return _optional.load("hyperopt", "HyperOptSearch")


def _identity(config: Any) -> Any:
    return config


def _nodes(expression: Any) -> list[Any]:
    pyll = _optional.load("hyperopt.pyll", "HyperOptSearch")
    return list(pyll.dfs(pyll.as_apply(expression)))


def _labels(expression: Any) -> list[str]:
    return sorted({node.arg["label"].obj for node in _nodes(expression) if node.name == "hyperopt_param"})


def _categories(expression: Any) -> dict[str, list[Any]]:
    """Return the constants among the values of each choice, by the label of its parameter."""
    found: dict[str, list[Any]] = {}
    for node in _nodes(expression):
        if node.name == "switch" and node.pos_args[0].name == "hyperopt_param":
            label = node.pos_args[0].arg["label"].obj
            found[label] = [each.obj if each.name == "literal" else _NESTED for each in node.pos_args[1:]]
    return found


def _expression(label: str, parameter: Parameter) -> Any:
    hyperopt = _load()
    hp, to_int = hyperopt.hp, _optional.load("hyperopt.pyll", "HyperOptSearch").scope.int
    domain, sampler, q = parameter.domain, parameter.sampler, parameter.q
    if isinstance(domain, Categorical) and isinstance(sampler, Uniform):
        return hp.choice(
            label, [_category(f"{label}/{n}", value) for n, value in enumerate(domain.categories)]
        )
    if (
        isinstance(domain, Float)
        and isinstance(sampler, Normal)
        and math.isinf(domain.lower)
        and math.isinf(domain.upper)
    ):
        normal = (label, sampler.mean, sampler.sd)
        return hp.qnormal(*normal, q) if q else hp.normal(*normal)
    if isinstance(domain, Float | Integer) and isinstance(sampler, Uniform | LogUniform):
        log = isinstance(sampler, LogUniform)
        step: float | None = q or (1 if isinstance(domain, Integer) else None)
        lower, upper = domain.lower, domain.upper
        if isinstance(domain, Integer):
            upper = parameter.last
        if step is not None:
            first, last = multiples(lower, upper, step)
            lower, upper = first * step, last * step
        bounds = (math.log(lower), math.log(upper)) if log else (lower, upper)
        if step is None:
            return hp.loguniform(label, *bounds) if log else hp.uniform(label, *bounds)
        value = hp.qloguniform(label, *bounds, step) if log else hp.quniform(label, *bounds, step)
        return to_int(value) if isinstance(domain, Integer) else value
    raise unsupported(_LIBRARY, parameter)


def _category(label: str, value: Any) -> Any:
    """Return a value of a choice, in which domains are converted."""
    if isinstance(value, Domain):
        return HyperOptSearch.convert_search_space({"value": value}, prefix=label)["value"]
    if not has_domains(value):
        return value if not isinstance(value, dict | list | tuple) else _literal(value)
    if isinstance(value, dict):
        return HyperOptSearch.convert_search_space(value, prefix=label)
    return list(
        HyperOptSearch.convert_search_space(
            {str(n): each for n, each in enumerate(value)}, prefix=label
        ).values()
    )


def _literal(value: Any) -> Any:
    """Return a constant container as one node, so that it is suggested as it is."""
    return _optional.load("hyperopt.pyll", "HyperOptSearch").Literal(value)
