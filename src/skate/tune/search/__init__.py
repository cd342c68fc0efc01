"""Search algorithms and search spaces."""

from skate.tune.search._library import UNDEFINED_METRIC_MODE, UNDEFINED_SEARCH_SPACE, UNRESOLVED_SEARCH_SPACE
from skate.tune.search._registry import SEARCH_ALG_IMPORT, create_searcher
from skate.tune.search._sobol import SobolSearch
from skate.tune.search.basic_variant import BasicVariantGenerator
from skate.tune.search.concurrency_limiter import ConcurrencyLimiter
from skate.tune.search.repeater import Repeater
from skate.tune.search.search_algorithm import SearchAlgorithm
from skate.tune.search.search_generator import SearchGenerator
from skate.tune.search.searcher import Searcher
from skate.tune.search.variant_generator import grid_search

__all__ = [
    "SEARCH_ALG_IMPORT",
    "UNDEFINED_METRIC_MODE",
    "UNDEFINED_SEARCH_SPACE",
    "UNRESOLVED_SEARCH_SPACE",
    "BasicVariantGenerator",
    "ConcurrencyLimiter",
    "Repeater",
    "SearchAlgorithm",
    "SearchGenerator",
    "Searcher",
    "SobolSearch",
    "create_searcher",
    "grid_search",
]
