"""Search with BOHB of HpBandSter."""

from skate.tune.search.bohb.bohb_search import TuneBOHB

__all__ = ["TuneBOHB"]
