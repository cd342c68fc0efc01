"""Search with Ax."""

from skate.tune.search.ax.ax_search import AxSearch

__all__ = ["AxSearch"]
