"""Searchers by name."""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from skate._base.suggestions import did_you_mean

logger = logging.getLogger(__name__)


def _load(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"skate.tune.search.{module}"), name)


_BASIC = partial(_load, "basic_variant", "BasicVariantGenerator")

SEARCH_ALG_IMPORT: Final[dict[str, Callable[[], Any]]] = {
    "variant_generator": _BASIC,
    "random": _BASIC,
    "sobol": partial(_load, "_sobol", "SobolSearch"),
    "ax": partial(_load, "ax.ax_search", "AxSearch"),
    "hyperopt": partial(_load, "hyperopt.hyperopt_search", "HyperOptSearch"),
    "bayesopt": partial(_load, "bayesopt.bayesopt_search", "BayesOptSearch"),
    "bohb": partial(_load, "bohb.bohb_search", "TuneBOHB"),
    "nevergrad": partial(_load, "nevergrad.nevergrad_search", "NevergradSearch"),
    "optuna": partial(_load, "optuna.optuna_search", "OptunaSearch"),
    "zoopt": partial(_load, "zoopt.zoopt_search", "ZOOptSearch"),
    "hebo": partial(_load, "hebo.hebo_search", "HEBOSearch"),
}


def create_searcher(search_alg: str, **kwargs: Any) -> Any:
    """Return a new search algorithm.

    Args:
        search_alg: Its name, such as `"optuna"` or `"random"`.
        **kwargs: Arguments of its class. Arguments that the class does not have are dropped with a warning, so that
            the same call works for several algorithms.

    Returns:
        The searcher or search algorithm.

    Raises:
        ValueError: There is no such algorithm.
        ImportError: Its library is not installed.
    """
    name = search_alg.lower()
    if name not in SEARCH_ALG_IMPORT:
        raise ValueError(
            f"There is no search algorithm {search_alg!r}.{did_you_mean(name, SEARCH_ALG_IMPORT)} "
            f"Choose one of {list(SEARCH_ALG_IMPORT)}."
        )
    searcher = SEARCH_ALG_IMPORT[name]()
    parameters = inspect.signature(searcher).parameters
    accepts_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    dropped = [] if accepts_all else [each for each in kwargs if each not in parameters]
    if dropped:
        logger.warning("%s has no arguments %s: they are dropped.", searcher.__name__, dropped)
    return searcher(**{each: value for each, value in kwargs.items() if each not in dropped})
