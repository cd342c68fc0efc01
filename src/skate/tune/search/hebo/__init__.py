"""Search with HEBO."""

from skate.tune.search.hebo.hebo_search import HEBOSearch

__all__ = ["HEBOSearch"]
